# SPDX-License-Identifier: Apache-2.0
"""Scenario: a small job that Spark runs in its own Python workers, and the table of all scenarios."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

Job = Callable[[SparkSession], Any]


@dataclass(frozen=True)
class Scenario:
    """Job that runs on stock and on the pool.

    Attributes:
        run: runs the job and returns the outcome, which `outcome_of` turns into JSON. An expected error is part of the
            outcome (`tests.workers.failures`); an exception that `run` raises fails the scenario.
        everyday: whether `make check` runs the scenario; `make test-workers` runs all scenarios.
        since: first Spark version that can run the scenario.
        seconds: time after which the application cancels the scenario's jobs.
    """

    run: Job
    everyday: bool
    since: tuple[int, int]
    seconds: float


SCENARIOS: dict[str, Scenario] = {}
"""Scenarios of all imported modules, by name (`module-function`)."""


def scenario(
    *,
    everyday: bool = False,
    since: tuple[int, int] = (4, 0),
    seconds: float = 60,
) -> Callable[[Job], Job]:
    """Return a decorator that adds the function to SCENARIOS."""

    def add(run: Job) -> Job:
        name = f"{run.__module__.rpartition('.')[2]}-{run.__name__}"
        assert name not in SCENARIOS, name
        SCENARIOS[name] = Scenario(run, everyday, since, seconds)
        return run

    return add


def outcome_of(value: Any) -> Any:
    """Return the value in JSON's types: lists for tuples, texts for values that JSON cannot represent."""
    return json.loads(json.dumps(value, default=repr))
