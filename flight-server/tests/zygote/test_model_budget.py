# SPDX-License-Identifier: Apache-2.0
"""Model processes that make room for another one, and restarts of a process that died."""

import pytest

from updraft_server.zygote.function_models import RESIDENT_SECONDS, Backoff, Resident, victims

NOW = 1000.0


def resident(model: str, *, connections: int = 0, ready: float = 0.0, used: float = 0.0) -> Resident:
    return Resident(model, 100, connections, ready, used)


def test_nothing_ends_while_there_is_room() -> None:
    assert victims([resident("a"), resident("b")], 0, NOW) == []
    assert victims([resident("a")], -5, NOW) == []


def test_the_least_recently_used_ends_first_and_no_more_than_needed() -> None:
    residents = [resident("new", used=900), resident("old", used=10), resident("older", used=5)]
    assert victims(residents, 1, NOW) == ["older"]
    assert victims(residents, 101, NOW) == ["older", "old"]


def test_those_without_exchanges_end_before_those_with_some() -> None:
    residents = [resident("busy", connections=2, used=5), resident("idle", used=900)]
    assert victims(residents, 1, NOW) == ["idle"]
    assert victims(residents, 150, NOW) == ["idle", "busy"]


def test_one_that_has_just_got_exchanges_keeps_its_room_for_a_while() -> None:
    residents = [resident("busy", connections=1, ready=NOW - RESIDENT_SECONDS + 1)]
    assert victims(residents, 1, NOW) == []
    assert victims(residents, 1, NOW + 1) == ["busy"]


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_after_the_first_death_there_is_no_pause_and_then_longer_and_longer_ones() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    pauses = []
    for _ in range(10):
        backoff.died(ready_seconds=clock())
        pauses.append(backoff.pause_seconds)
        clock.seconds += backoff.pause_seconds
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_what_cannot_be_loaded_is_not_loaded_again_at_once() -> None:
    backoff = Backoff(Clock())
    backoff.died(ready_seconds=None)
    assert backoff.pause_seconds == 1


def test_a_pause_passes() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    for _ in range(2):
        backoff.died(ready_seconds=0.0)
    clock.seconds = 0.25
    assert backoff.pause_seconds == pytest.approx(0.75)
    clock.seconds = 5
    assert backoff.pause_seconds == 0


def test_long_service_is_as_good_as_a_new_start() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    for _ in range(5):
        backoff.died(ready_seconds=0.0)
    clock.seconds = 100
    backoff.died(ready_seconds=10)
    assert backoff.pause_seconds == 0
