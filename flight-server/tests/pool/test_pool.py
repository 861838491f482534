# SPDX-License-Identifier: Apache-2.0
"""Leases and replacements of a pool's workers, with a zygote that forks nothing."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from pools_for_tests import TASK, running

from updraft_server.pool.bindings import Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import (
    LeaseOutcome,
    NoIdleWorker,
    Owner,
    PoolError,
    TaskKey,
)
from updraft_server.pool.worker_events import WorkerOutput

A, B = (Binding(Owner("tenant", application, "")) for application in ("a", "b"))


async def test_a_session_gets_the_worker_that_knows_it(tmp_path: Path) -> None:
    async with running(tmp_path, workers=3) as (pool, _):
        sessions = [A._replace(modules=modules) for modules in ("", "x", "y")]
        leases = [await pool.lease(None, binding) for binding in sessions]
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        # Each session gets its own worker, in any order and whatever else is idle.
        assert (await pool.lease(None, sessions[1])).worker == leases[1].worker
        assert (await pool.lease(None, sessions[2])).worker == leases[2].worker
        assert (await pool.lease(None, A._replace(modules="z"))).worker == leases[0].worker


async def test_a_spare_serves_a_task_that_holds_a_worker_and_may_have_another(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1, workers_per_task=2) as (pool, _):
        first, second, other = await pool.lease(TASK), await pool.lease(TASK), TaskKey("app", 1, 3)
        second.release(LeaseOutcome.CLEAN)
        for task in (None, other):
            with pytest.raises(NoIdleWorker, match="busy"):
                await pool.lease(task)
        assert (await pool.lease(TASK)).worker == second.worker
        first.release(LeaseOutcome.CLEAN)
        with pytest.raises(NoIdleWorker, match="busy"):
            await pool.lease(other)


async def test_a_pool_runs_as_many_tasks_as_it_has_workers_whatever_each_holds(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, workers_per_task=2) as (pool, zygote):
        first, second, third = (TaskKey("app", 1, number) for number in range(3))
        held = {task: [await pool.lease(task)] for task in (first, second)}
        for task, leases in held.items():
            leases.append(await pool.lease(task))
        for lease in held[second]:
            lease.release(LeaseOutcome.CLEAN)
        assert pool.idle == 1
        leases = [await pool.lease(third) for _ in range(2)]
        assert {lease.worker for lease in leases} == {lease.worker for lease in held[second]}
        with pytest.raises(NoIdleWorker, match="busy"):
            await pool.lease(second)
        assert zygote.forks == 4


async def test_a_spare_serves_a_task_whose_worker_ended_while_it_was_idle(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, workers_per_task=2) as (pool, zygote):
        other = TaskKey("app", 1, 3)
        # The tasks take turns, or the first would hold both of the pool's own workers.
        held = [await pool.lease(task) for task in (TASK, other, TASK, other)]
        for lease in held[1::2]:
            lease.release(LeaseOutcome.CLEAN)
        (idle,) = (info.worker for info in pool.workers if info.state == "idle")
        zygote.end(idle, -signal.SIGKILL)
        await until(pool, lambda: pool.idle == 1 and len(pool.workers) == 3)
        assert zygote.forks == 4


async def test_a_task_at_its_limit_gets_no_spare_either(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, workers_per_task=2) as (pool, _):
        other = TaskKey("app", 1, 3)
        held = [await pool.lease(task) for task in (TASK, other, TASK, other)]
        held[3].release(LeaseOutcome.CLEAN)
        with pytest.raises(NoIdleWorker, match="the task holds 2 workers"):
            await pool.lease(TASK)


async def test_a_task_that_asks_for_several_at_once_gets_no_more_than_it_may_have(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1, workers_per_task=3, extra_workers=100) as (pool, zygote):
        await pool.lease(TASK)
        asked = await asyncio.gather(*(pool.lease(TASK) for _ in range(8)), return_exceptions=True)
        refused = [answer for answer in asked if isinstance(answer, NoIdleWorker)]
        assert len(refused) == 6
        assert zygote.forks == 3


async def test_the_extra_workers_of_all_tasks_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, extra_workers=1) as (pool, _):
        other = TaskKey("app", 1, 3)
        extra = [await pool.lease(task) for task in (TASK, other, TASK)][-1]
        with pytest.raises(NoIdleWorker, match="there are 1 extra workers, the maximum for the pool"):
            await pool.lease(other)
        extra.release(LeaseOutcome.CLEAN)
        # The spared worker may serve another task of the same owner.
        await pool.lease(other)


async def test_a_pool_without_idle_workers_starts_an_extra_one_and_ends_it_when_it_is_not_needed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, workers=1, extra_workers=1) as (pool, zygote):
        first, extra = await pool.lease(None, A), await pool.lease_extra(None, B)
        assert (pool.busy, zygote.forks) == (2, 2)
        with pytest.raises(NoIdleWorker, match="there are 1 extra workers, the maximum for the pool"):
            await pool.lease_extra(None, B)
        for lease in (first, extra):
            lease.release(LeaseOutcome.CLEAN)
        assert (pool.idle, pool.busy) == (1, 0)


async def test_workers_of_other_sessions_are_replaced_one_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        for lease in [await pool.lease(None, A) for _ in range(2)]:
            lease.release(LeaseOutcome.CLEAN)
        # Let the pool handle the release, so that later events have to wake it on their own.
        for _ in range(100):
            await asyncio.sleep(0)
        before = set(zygote.living)
        for _ in range(2):
            with pytest.raises(NoIdleWorker, match="can serve the owner"):
                await pool.lease(None, B)
        await until(pool, lambda: pool.starting == 1)
        with pytest.raises(NoIdleWorker, match="can serve the owner"):
            await pool.lease(None, B)
        await until(pool, lambda: pool.idle == 2)
        assert len(before & set(zygote.living)) == 1
        assert (await pool.lease(None, B)).worker not in before


async def test_a_spare_of_another_session_is_not_taken(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as (pool, _):
        leases = [await pool.lease(TASK, A) for _ in range(2)]
        # The pool has one worker too many: it keeps this one for a task that needs several.
        leases[0].release(LeaseOutcome.CLEAN)
        other = await pool.lease(TASK, B)
        assert other.worker not in {lease.worker for lease in leases}
        assert (await pool.lease(TASK, A)).worker == leases[0].worker


async def test_a_task_holds_no_more_than_it_may(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1, workers_per_task=2) as (pool, _):
        held = [await pool.lease(TASK) for _ in range(2)]
        assert (pool.busy, pool.idle, pool.starting) == (2, 0, 0)
        with pytest.raises(NoIdleWorker, match="the task holds 2 workers"):
            await pool.lease(TASK)
        held[1].release(LeaseOutcome.BROKEN)
        await pool.lease(TASK)


async def test_nobody_without_a_task_gets_more_than_the_pool_has(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as (pool, _):
        await pool.lease(None)
        with pytest.raises(NoIdleWorker, match="all workers are busy"):
            await pool.lease(None)


@pytest.mark.parametrize(
    ("status", "reason"), [(3, "exit"), (0, "exit"), (-signal.SIGSEGV, "signal"), (-signal.SIGKILL, "signal")]
)
async def test_an_end_is_counted_by_its_reason_and_healed(tmp_path: Path, status: int, reason: str) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        zygote.end("w-1", status)
        await until(pool, lambda: pool.exits[reason] == 1 and pool.idle == 2)
        assert sum(pool.exits.values()) == 1
        assert {info.worker for info in pool.workers} == {"w-2", "w-3"}


async def test_a_worker_that_was_not_given_back_clean_is_the_pools_to_end(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, _):
        lease = await pool.lease(None)
        lease.release(LeaseOutcome.CANCELLED)
        lease.release(LeaseOutcome.CLEAN)
        assert (await lease.death).signal == signal.SIGKILL
        await until(pool, lambda: pool.idle == 1)
        assert pool.exits == {"signal": 0, "exit": 0, "pool": 1, "leftover": 0}


async def test_a_pool_that_closes_waits_for_leases_and_gives_none(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        lease = await pool.lease(None)
        closing = asyncio.create_task(pool.close(60.0))
        # More turns than a premature end would take.
        for _ in range(100):
            await asyncio.sleep(0)
        with pytest.raises(PoolError, match="closing"):
            await pool.lease(None)
        assert not closing.done()
        assert len(zygote.living) == 2
        lease.release(LeaseOutcome.CLEAN)
        await closing
        assert not zygote.living


async def test_a_spare_takes_the_place_of_a_worker_that_ended_and_none_is_forked(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        spare, idle = [await pool.lease(TASK) for _ in range(2)]
        spare.release(LeaseOutcome.CLEAN)
        idle.release(LeaseOutcome.CLEAN)
        zygote.end(idle.worker, 1)
        await until(pool, lambda: pool.exits["exit"] == 1 and pool.idle == 1)
        assert ((await pool.lease(None)).worker, zygote.forks) == (spare.worker, 2)


async def test_a_worker_that_a_task_waits_for_is_starting(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, _):
        seen: list[int] = []
        await pool.lease(TASK)
        pool.subscribe(lambda: seen.append(pool.starting))
        await pool.lease(TASK)
        assert (max(seen), pool.starting) == (1, 0)


async def test_what_was_last_measured_is_kept_and_without_a_zygote_nothing_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, _):
        (info,) = pool.workers
        assert (await pool.measure([info.worker]))[info.worker].memory_bytes == 4096
        assert [info.memory_bytes for info in pool.workers] == [4096]
        pool._zygote.close()
        assert await pool.measure([info.worker]) == {}


async def test_an_exchange_keeps_the_socket_of_a_worker_that_has_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        lease = await pool.lease(None)
        zygote.end(lease.worker, 1)
        assert str(await lease.death) == "exited with code 1"
        assert lease.socket.fileno() >= 0
        lease.release(LeaseOutcome.BROKEN)
        assert lease.socket.fileno() < 0


async def test_the_next_zygote_is_told_which_workers_are_kept_and_which_were_to_end(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        kept, broken = [await pool.lease(None) for _ in range(2)]
        zygote.hang_up()
        broken.release(LeaseOutcome.BROKEN)
        assert (await broken.death).signal == signal.SIGKILL
        assert sorted(zygote.claimed) == sorted([kept.worker, broken.worker])
        kept.release(LeaseOutcome.CLEAN)
        await until(pool, lambda: pool.idle == 2)
        assert kept.worker in zygote.living


async def test_what_a_worker_prints_belongs_to_the_exchange_that_holds_it_and_later_to_none(tmp_path: Path) -> None:
    lines: asyncio.Queue[WorkerOutput] = asyncio.Queue()
    async with running(tmp_path, on_output=lines.put_nowait) as (pool, zygote):
        lease = await pool.lease(None)
        lease.log_context["task"] = "7"
        _, writing = zygote.living[lease.worker]
        os.write(writing, b"within\n")
        lease.release(LeaseOutcome.CLEAN)
        os.write(writing, b"late\n")
        printed = [await lines.get() for _ in range(2)]
    assert [(line.line, line.context) for line in printed] == [("within", {"task": "7"}), ("late", {})]


async def test_one_spare_for_two_workers_that_ended_at_once_leaves_one_to_fork(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        leases = [await pool.lease(TASK) for _ in range(3)]
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        spare, *idle = (lease.worker for lease in leases)
        for worker in idle:
            zygote.end(worker, 1)
        await until(pool, lambda: pool.exits["exit"] == 2 and pool.idle == 2)
        # More turns than an unneeded start would take.
        for _ in range(100):
            await asyncio.sleep(0)
        assert {info.worker for info in pool.workers} == {spare, "w-4"}
        assert (zygote.forks, pool.starting) == (4, 0)


async def test_a_worker_that_is_not_ready_in_time_is_nobodys(tmp_path: Path) -> None:
    async with running(tmp_path, fork_timeout_seconds=0.05) as (pool, zygote):
        await pool.lease(TASK)
        zygote.may_fork = False
        with pytest.raises(PoolError, match=r"a new worker was not ready within 0\.05 seconds"):
            await pool.lease(TASK)
        assert (pool.busy, len(pool.workers)) == (1, 1)


async def test_a_worker_that_is_given_back_while_the_pool_closes_does_not_wait_for_the_others(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, _):
        first, second = [await pool.lease(None) for _ in range(2)]
        closing = asyncio.create_task(pool.close(60.0))
        await asyncio.sleep(0)
        first.release(LeaseOutcome.CLEAN)
        assert (await first.death).signal == signal.SIGKILL
        assert not closing.done()
        second.release(LeaseOutcome.CLEAN)
        await closing
