# SPDX-License-Identifier: Apache-2.0
"""Leases of a pool, and what becomes of a worker that is released."""

import asyncio
from pathlib import Path

import pyspark
import pytest
from pool_driver import (
    Zygotes,
    answers,
    batches_of,
    exchange,
    running_pool,
)

from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, TaskKey

TASK = TaskKey("app", 1, 2)
OTHER_TASK = TaskKey("another application", 1, 2)


async def test_echo_gives_back_every_batch_under_its_number(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        sent = batches_of([3, 1, 1000])
        reply = await exchange(pool, sent)
    assert reply.batches == list(enumerate(sent, 1))
    assert reply.schema == sent[0].schema
    assert (reply.finish.batches, reply.finish.rows) == (3, 1004)
    assert reply.ending is FrameKind.DONE


async def test_a_started_pool_is_warm_and_knows_what_it_runs(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        assert (pool.idle, pool.busy, pool.starting) == (3, 0, 0)
        assert [function.name for function in pool.functions] == ["echo"]
        assert pool.python_version.startswith("3.")
        assert pool.pyspark_version == pyspark.__version__


async def test_a_clean_worker_is_used_again_and_a_broken_one_is_not(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        first = await pool.lease(None)
        first.release(LeaseOutcome.CLEAN)
        second = await pool.lease(None)
        assert second.worker == first.worker
        second.release(LeaseOutcome.BROKEN)
        second.release(LeaseOutcome.CLEAN)
        await until(pool, lambda: pool.idle == 1)
        third = await pool.lease(None)
        assert third.worker != second.worker
        third.release(LeaseOutcome.CLEAN)


async def test_without_an_idle_worker_a_lease_is_refused_at_once(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        held = await pool.lease(TASK)
        with pytest.raises(NoIdleWorker):
            await pool.lease(None)
        with pytest.raises(NoIdleWorker):
            await pool.lease(TaskKey("app", 1, 3))
        held.release(LeaseOutcome.CLEAN)
        assert pool.idle == 1


async def test_a_task_gets_extra_workers_up_to_its_limit_and_they_do_not_stay(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers_per_task=3, idle_seconds=0.0) as pool:
        leases = [await pool.lease(TASK) for _ in range(3)]
        assert len({lease.worker for lease in leases}) == 3
        assert pool.busy == 3
        with pytest.raises(NoIdleWorker):
            await pool.lease(TASK)
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        assert (pool.idle, pool.busy) == (1, 0)
        await asyncio.gather(*(lease.death for lease in leases[:2]))
        await answers(pool)


async def test_an_extra_worker_is_kept_for_the_next_task_that_needs_several(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        before = [await pool.lease(TASK) for _ in range(2)]
        for lease in before:
            lease.release(LeaseOutcome.CLEAN)
        first = await pool.lease(OTHER_TASK)
        with pytest.raises(NoIdleWorker):
            await pool.lease(TASK)
        second = await pool.lease(OTHER_TASK)
        assert {first.worker, second.worker} == {lease.worker for lease in before}
        first.release(LeaseOutcome.BROKEN)
        second.release(LeaseOutcome.CLEAN)
        await answers(pool)


async def test_a_worker_is_replaced_after_its_number_of_exchanges(tmp_path: Path) -> None:
    limited = Zygotes(tmp_path, WorkerSettings(max_exchanges_per_worker=2))
    try:
        async with running_pool(limited) as pool:
            endings = []
            for _ in range(3):
                await until(pool, lambda: pool.idle == 1)
                endings.append((await exchange(pool, batches_of([1]))).ending)
    finally:
        limited.stop()
    assert endings == [FrameKind.DONE, FrameKind.RETIRED, FrameKind.DONE]


async def test_the_front_keeps_what_was_last_measured_of_each_worker(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        assert [info.memory_bytes for info in pool.workers] == [None, None]
        first, second = (info.worker for info in pool.workers)
        usage = await pool.measure([first, "gone-1"])
        assert set(usage) == {first}
        assert usage[first].memory_bytes > 1024 * 1024
        assert (await pool.measure([first]))[first].processor_mark == usage[first].processor_mark
        assert {info.worker: info.memory_bytes for info in pool.workers} == {
            first: usage[first].memory_bytes,
            second: None,
        }
