# SPDX-License-Identifier: Apache-2.0
"""Turns of tenants when a worker becomes free, by a clock that the test moves."""

import time
from collections.abc import Callable

import pytest

from updraft_server.front.queue.turns import TURN_SECONDS, Turn, Turns
from updraft_server.pool.leases import Owner

CAPS: dict[str, int] = {"capped": 1}


class Pool:
    """Workers that are granted to the tenant that is next."""

    def __init__(self, workers: int = 1) -> None:
        self.now = 0.0
        self.idle = workers
        self.turns: Turns[str] = Turns(idle=lambda: self.idle, most_workers=CAPS.get, now=lambda: self.now)
        self._ready: dict[str, tuple[str, Owner | None]] = {}

    def come(self, name: str, tenant: str, owner: Owner | None = None) -> None:
        self._ready[name] = (tenant, owner)
        self.turns.add(tenant, owner, name)

    def grant(self) -> tuple[str, Turn] | None:
        name = next(self.turns.candidates(), None)
        if name is None:
            return None
        tenant, owner = self._ready.pop(name)
        self.idle -= 1
        self.turns.count(tenant, owner, +1)
        turn = self.turns.begun(tenant, owner)
        self.turns.discard(tenant, owner, name)
        return name, turn

    def release(self, turn: Turn) -> None:
        self.turns.ended(turn)
        self.idle += 1

    def serve(self, seconds: float) -> str:
        """Grant a worker to the next tenant for this long."""
        granted = self.grant()
        assert granted is not None
        self.now += seconds
        self.release(granted[1])
        return granted[0]


@pytest.fixture
def flooded() -> Pool:
    """Return a pool with one free worker, in which ten tenants always wait and have used a turn each."""
    pool = Pool()
    for number in range(10):
        for turn in range(3):
            pool.come(f"flood-{number}-{turn}", f"flood-{number}")
    for _ in range(10):
        pool.serve(TURN_SECONDS)
    return pool


def test_who_has_used_little_is_next_although_all_others_came_first(flooded: Pool) -> None:
    flooded.come("first", "quiet")
    assert flooded.serve(TURN_SECONDS / 2) == "first"
    assert flooded.serve(TURN_SECONDS) != "first"


def test_who_has_used_its_turn_waits_like_all_others(flooded: Pool) -> None:
    for number in range(20):
        flooded.come(str(number), "busy")
    assert flooded.serve(TURN_SECONDS) == "0"
    assert [name for name in (flooded.serve(0.1) for _ in range(10)) if not name.startswith("flood")] == []


@pytest.mark.parametrize(("away_seconds", "is_next"), [(0.0, False), (22 * TURN_SECONDS, True)])
def test_a_share_makes_up_for_what_was_used_while_nothing_is_asked_for(
    flooded: Pool, away_seconds: float, is_next: bool
) -> None:
    flooded.come("first", "quiet")
    flooded.serve(2 * TURN_SECONDS)
    flooded.now += away_seconds
    flooded.come("second", "quiet")
    assert (flooded.serve(0.1) == "second") is is_next


def test_who_always_asks_is_forgiven_nothing(flooded: Pool) -> None:
    flooded.now += 1000 * TURN_SECONDS
    flooded.come("new", "new")
    assert flooded.turns.has_used_a_turn("flood-0")
    assert flooded.serve(0.1) == "new"


def test_a_tenant_at_its_cap_holds_nobody_up_and_goes_on_when_a_worker_is_back() -> None:
    pool = Pool(workers=3)
    for name in ("c1", "c2"):
        pool.come(name, "capped")
    pool.come("other", "other")
    first, second = pool.grant(), pool.grant()
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == ("c1", "other")
    assert pool.grant() is None
    assert not pool.turns
    pool.release(first[1])
    third = pool.grant()
    assert third is not None
    assert third[0] == "c2"


def test_the_owners_of_a_tenant_share_what_it_has() -> None:
    pool = Pool(workers=3)
    for name, application in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        pool.come(name, "t", Owner("t", application, ""))
    names = [granted[0] for granted in (pool.grant(), pool.grant()) if granted is not None]
    assert names == ["a1", "b1"]


def test_nothing_is_remembered_of_tenants_that_have_gone() -> None:
    pool = Pool()
    for number in range(10_000):
        pool.come("x", f"tenant-{number}")
        pool.serve(0.001)
    assert len(pool.turns._uses) <= 4096
    assert (pool.turns._ready, dict(pool.turns._at_work), dict(pool.turns._at_work_for_owners)) == ({}, {}, {})


def _seconds_of_choices(tenants: int, clock: Callable[[], float] = time.process_time) -> float:
    """Return the CPU seconds of 4,000 choices, the least of three tries."""
    found = []
    for _ in range(3):
        pool = Pool(workers=8)
        for number in range(4000):
            pool.come(str(number), f"tenant-{number % tenants}")
        started = clock()
        for _ in range(4000):
            pool.serve(0.01)
        found.append(clock() - started)
    return min(found)


def test_a_choice_takes_no_longer_where_more_tenants_wait() -> None:
    # The number of choices is equal: if the work grew with the tenants, it would take hundreds of times as long.
    assert _seconds_of_choices(2000) < 10 * _seconds_of_choices(8)
