# SPDX-License-Identifier: Apache-2.0
"""`make bench-models` fails if and only if a promise is missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.programs.bench.models import Measured, copies, promises

MIB = 1 << 20
WITHOUT, WITH, PROCESS = 11 * MIB, 122 * MIB, 139 * MIB
WORKERS = [WITHOUT] * 16
IN_EACH = Measured(5_000.0, [WITH] * 16, [], {})
ONE_BY_ONE = Measured(3_000.0, WORKERS, [PROCESS], {})
JOINED = Measured(12_000.0, WORKERS, [PROCESS], {"batches": 10, "rows": 5_120, "wait_seconds": 0.1})


def missed(**changes: Any) -> Sequence[str]:
    return promises(replace(JOINED, **changes), ONE_BY_ONE, IN_EACH)


def test_what_keeps_every_promise_misses_none() -> None:
    assert not missed()


@pytest.mark.parametrize("wait_seconds", [0.11, None])
def test_rows_wait_no_longer_than_the_author_says(wait_seconds: float | None) -> None:
    model = {**JOINED.model, "wait_seconds": wait_seconds}
    assert missed(model=model) == [f"a wait of {wait_seconds} s, configured 0.1 s"]


def test_batches_are_large() -> None:
    model = {**JOINED.model, "rows": 5_000}
    assert missed(model=model) == ["batches of 500 rows, promised at least 512"]


def test_rows_are_those_of_one_batch_at_a_time_several_times_over() -> None:
    assert missed(rows_per_second=11_700.0) == ["3.9 times the rows of one batch at a time, promised at least 4"]


TWICE = {
    "a second process of the function": {"models_bytes": [PROCESS] * 2},
    "a process that has loaded it twice": {"models_bytes": [PROCESS + WITH - WITHOUT]},
    "a worker that has loaded it too": {"workers_bytes": [WITH, *WORKERS[1:]]},
    "each worker has loaded it too": {"workers_bytes": [WITH] * 16},
}


@pytest.mark.parametrize("where", TWICE)
def test_the_model_is_in_memory_once(where: str) -> None:
    (line,) = missed(**TWICE[where])
    assert line.endswith(" times the memory of one model, promised one copy of it")


def test_copies_are_counted_beside_a_worker_without_one() -> None:
    assert copies(replace(JOINED, models_bytes=[WITH - WITHOUT] * 2), IN_EACH) == 2
