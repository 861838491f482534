# SPDX-License-Identifier: Apache-2.0
"""Worker starts that a test drives without forking."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from updraft_server.pool.leases import PoolError
from updraft_server.pool.worker import PooledWorker, WorkerState
from updraft_server.pool.worker_starts import MAX_FAILURES, WorkerStarts


def new_worker() -> Any:
    """Return a stand-in for a `PooledWorker`, of which a start reads only the state."""
    return SimpleNamespace(state=WorkerState.STARTING)


async def failed() -> PooledWorker:
    raise PoolError("no memory")


async def until_none_is_under_way(starts: WorkerStarts) -> None:
    await asyncio.gather(*starts._tasks, return_exceptions=True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of pauses before each start; nothing really sleeps."""
    noted: list[float] = []
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            noted.append(seconds)
        await turn(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return noted


async def test_a_start_is_held_back_as_long_as_the_pace_says(pauses: list[float]) -> None:
    changes: list[int] = []
    starts = WorkerStarts(1, failed, lambda: changes.append(starts.unasked))
    for _ in range(3):
        await starts.pace()
        starts.begin()
        await until_none_is_under_way(starts)
    assert pauses == [0.1, 0.2]
    assert changes == [1, 0] * 3
    assert starts.last_failure == "no memory"


async def test_a_worker_that_has_started_is_fresh_and_the_next_is_not_held_back(pauses: list[float]) -> None:
    workers: list[PooledWorker] = []

    async def start() -> Any:
        if not workers:
            workers.append(new_worker())
            raise PoolError("once")
        workers.append(new_worker())
        return workers[-1]

    starts = WorkerStarts(1, start, lambda: None)
    for _ in range(3):
        await starts.pace()
        starts.begin()
        await until_none_is_under_way(starts)
    assert pauses == [0.1]
    assert [worker.state for worker in workers[1:]] == [WorkerState.FRESH] * 2


async def test_a_worker_that_died_while_it_started_does_not_become_idle(pauses: list[float]) -> None:
    worker = new_worker()

    async def start() -> Any:
        worker.state = WorkerState.DEAD
        return worker

    starts = WorkerStarts(1, start, lambda: None)
    starts.begin()
    await until_none_is_under_way(starts)
    assert worker.state is WorkerState.DEAD


async def test_extra_starts_are_counted_apart_whether_they_succeed_or_not(pauses: list[float]) -> None:
    counts: list[tuple[int, int]] = []
    starts = WorkerStarts(1, failed, lambda: counts.append((starts.unasked, starts.extra)))
    with pytest.raises(PoolError, match="no memory"):
        await starts.start_extra()
    assert (counts, starts.extra, pauses) == ([(0, 1)], 0, [])


async def test_starts_are_hopeless_after_several_failures_and_not_before(pauses: list[float]) -> None:
    starts = WorkerStarts(1, failed, lambda: None)
    for _ in range(MAX_FAILURES):
        assert not starts.are_hopeless
        await starts.pace()
        starts.begin()
        await until_none_is_under_way(starts)
    assert starts.are_hopeless


async def test_a_start_that_is_cancelled_is_no_failure() -> None:
    async def hangs() -> Any:
        await asyncio.Event().wait()
        return new_worker()

    starts = WorkerStarts(1, hangs, lambda: None)
    starts.begin()
    await asyncio.sleep(0)
    await starts.stop()
    assert (starts.unasked, starts.last_failure) == (0, "")
