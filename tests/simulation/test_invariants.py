# SPDX-License-Identifier: Apache-2.0
"""The checker that simulator and soak share detects wrong events; the thousand seeds contain every kind of fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.simulation.faults import FAULTS, WRITER_FAULTS
from tests.simulation.scenario import Scenario, scenario_of
from tests.simulation.test_seeds import SEEDS, TWICE_EVERY
from tests.simulation.world import World
from tests.support.invariants import WRONG, Invariants, Rows, Source, runs

_TASK, _OTHER = Source("tenant", "app", "0"), Source("tenant", "app", "1")


def _found(*events: Callable[[Invariants], None]) -> list[str]:
    found: list[str] = []
    checker = Invariants(found.append)
    for event in events:
        event(checker)
    return found


def _gets(first: int, last: int, source: Source = _TASK, attempt: int = 0) -> Callable[[Invariants], None]:
    return lambda checker: checker.delivered(_TASK, Rows(source, attempt, first, last))


def _begins(checker: Invariants) -> None:
    checker.begins(_TASK, 10, attempt=0)


def _ends(checker: Invariants) -> None:
    checker.ends(_TASK)


def test_rows_once_in_order_and_of_the_own_task_violate_nothing() -> None:
    assert _found(_begins, _gets(1, 4), _gets(5, 10), _ends) == []
    assert _found(lambda checker: checker.begins(_TASK, 0), _ends) == []


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([_gets(1, 4)], "tenant/app/0 has ended, and row 5 of 10 was due"),
        ([_gets(1, 4), _gets(6, 10)], "was given rows 6 to 10 of tenant/app/0, attempt 0 where row 5 of 10 was due"),
        ([_gets(1, 10), _gets(10, 10)], "was given row 10 of tenant/app/0, attempt 0 where the end was due"),
        ([_gets(6, 10), _gets(1, 5)], "was given rows 6 to 10 of tenant/app/0, attempt 0 where row 1 of 10 was due"),
        ([_gets(1, 10, _OTHER)], "was given rows 1 to 10 of tenant/app/1, attempt 0 where row 1 of 10 was due"),
        ([_gets(1, 10, attempt=1)], "was given rows 1 to 10 of tenant/app/0, attempt 1 where row 1 of 10 was due"),
        ([_gets(1, 4), _gets(WRONG, WRONG)], "was given a wrong row of tenant/app/0, attempt 0 where row 5 of 10"),
    ],
)
def test_rows_that_are_lost_repeated_late_or_not_its_own_violate_an_invariant(
    events: list[Callable[[Invariants], None]], found: str
) -> None:
    assert found in _found(_begins, *events, _ends)[0]


def test_a_task_that_has_ended_expects_no_rows() -> None:
    assert "expects nothing and was given" in _found(_begins, _gets(1, 10), _ends, _gets(1, 1))[0]


def test_stretches_end_where_numbers_or_descriptions_do() -> None:
    numbers = np.array([1, 2, 3, 3, 4, 7, 8])
    assert list(runs(numbers)) == [(0, 2), (3, 4), (5, 6)]
    assert list(runs(numbers, np.array(["a", "a", "b", "b", "b", "b", "b"], object))) == [
        (0, 1),
        (2, 2),
        (3, 4),
        (5, 6),
    ]
    assert list(runs(np.array([], np.int64))) == []


def _finishes(rows: int) -> Callable[[Invariants], None]:
    return lambda checker: checker.finished("file", _TASK, rows)


def _publishes(*content: Rows) -> Callable[[Invariants], None]:
    return lambda checker: checker.published("file", content)


def _receives(checker: Invariants) -> None:
    checker.confirmed("file")


def test_a_whole_file_and_an_empty_one_violate_nothing() -> None:
    assert _found(_finishes(10), _publishes(Rows(_TASK, 3, 1, 10)), _receives) == []
    assert _found(_finishes(0), _publishes(), _receives) == []


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([_finishes(10), _publishes(Rows(_TASK, 0, 1, 9))], "file is torn: it should have 10 rows"),
        ([_finishes(10), _publishes()], "and has nothing"),
        ([_finishes(10), _publishes(Rows(_TASK, 0, 1, 5), Rows(_TASK, 1, 6, 10))], "file is torn"),
        ([_finishes(10), _publishes(Rows(_OTHER, 0, 1, 10))], "file is torn"),
        ([_finishes(9), _publishes(Rows(_TASK, 0, 1, 9)), _publishes(Rows(_TASK, 0, 1, 9))], "file is published twice"),
        ([_publishes(Rows(_TASK, 0, 1, 10))], "file is published, and its task never finished it"),
        ([_finishes(10), _receives], "file has a receipt and does not exist"),
    ],
)
def test_a_file_that_is_torn_repeated_unfinished_or_missing_violates_an_invariant(
    events: list[Callable[[Invariants], None]], found: str
) -> None:
    assert found in _found(*events)[0]


def test_memory_stays_between_nothing_and_the_quota_and_returns_to_nothing() -> None:
    assert (
        _found(lambda checker: checker.holds("writer", 10, 10), lambda checker: checker.settles("writer", {"bytes": 0}))
        == []
    )
    assert _found(lambda checker: checker.holds("writer", 11, 10)) == ["writer holds 11 bytes of a quota of 10"]
    assert _found(lambda checker: checker.holds("writer", -1, 10)) == ["writer holds -1 bytes of a quota of 10"]
    assert _found(lambda checker: checker.settles("writer", {"files": 1})) == [
        "writer is idle and still counts {'files': 1}"
    ]


def test_a_revoked_credential_opens_nothing_after_its_bound_until_it_is_granted_again() -> None:
    def opens(at_seconds: float) -> Callable[[Invariants], None]:
        return lambda checker: checker.opens("an exchange", "token", at_seconds, 2.0)

    def revokes(checker: Invariants) -> None:
        checker.revoked("token", 5.0)

    assert _found(opens(100.0), revokes, opens(7.0)) == []
    assert _found(revokes, opens(7.5)) == ["an exchange was opened for token, 2.500 s after it was revoked"]
    assert _found(revokes, lambda checker: checker.granted("token"), opens(100.0)) == []


def test_a_wait_is_bounded() -> None:
    assert _found(lambda checker: checker.waited("a task", 10.0, 10.0)) == []
    assert _found(lambda checker: checker.waited("a task", 10.5, 10.0)) == [
        "a task waited for 10.500 s, more than 10 s"
    ]


@pytest.mark.parametrize("step", [1, TWICE_EVERY])
def test_the_thousand_seeds_and_those_that_run_twice_contain_every_fault_and_files(step: int) -> None:
    scenarios = [_scenario(seed) for seed in range(0, SEEDS, step)]
    assert {fault.name for scenario in scenarios for fault in scenario.faults} == set(FAULTS)
    with_files = [scenario for scenario in scenarios if scenario.files]
    assert {fault.name for scenario in with_files for fault in scenario.faults} >= set(WRITER_FAULTS)


def _scenario(seed: int) -> Scenario:
    world = World(seed)
    try:
        return scenario_of(world)
    finally:
        world.loop.close()
