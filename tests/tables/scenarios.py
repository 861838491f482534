# SPDX-License-Identifier: Apache-2.0
"""Steps that write a table, run on stock and on Updraft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs


@dataclass(frozen=True)
class Place:
    """One side's table and its directory; `scratch` is an empty directory."""

    table: str
    directory: Path
    scratch: Path

    def fill(self, sql: str) -> str:
        """Return `sql` with its {t}, {d} and {s} filled in."""
        return sql.replace("{t}", self.table).replace("{d}", str(self.directory)).replace("{s}", str(self.scratch))


Step = str | Callable[[SparkSession, Place], object]


@dataclass(frozen=True)
class Scenario:
    """Steps that write a table.

    Attributes:
        steps: SQL, or functions.
        confs: settings of the session.
        by_writer: whether the writer makes all data files; if not, the table format makes them all.
        fails: whether the last step fails, on both sides.
    """

    steps: Sequence[Step]
    confs: Mapping[str, str] = field(default_factory=dict)
    by_writer: bool = True
    fails: bool = False


def parameters(scenarios: Mapping[str, Scenario], everyday: frozenset[str]) -> list[ParameterSet]:
    """Return the names of scenarios as parameters of a test; only `make test-formats` runs those not in `everyday`."""
    return [pytest.param(name, marks=() if name in everyday else pytest.mark.campaign) for name in scenarios]


def run(spark: SparkSession, scenario: Scenario, place: Place, confs: Mapping[str, str]) -> str:
    """Run the steps and return the kind of the last step's error."""
    place.scratch.mkdir(parents=True)
    with runtime_confs(spark, {**scenario.confs, **confs}):
        for number, step in enumerate(scenario.steps, start=1):
            try:
                if isinstance(step, str):
                    spark.sql(place.fill(step))
                else:
                    step(spark, place)
            except (PySparkException, Py4JJavaError) as error:
                if not scenario.fails or number < len(scenario.steps):
                    raise
                return str(error.getCondition() if isinstance(error, PySparkException) else type(error))
    return ""


def rows(spark: SparkSession, query: str) -> list[str]:
    """Return the rows of a query as texts, sorted."""
    return sorted(str(tuple(row)) for row in spark.sql(query).collect())
