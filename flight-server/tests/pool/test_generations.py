# SPDX-License-Identifier: Apache-2.0
"""Pool whose next zygote has other functions: idle workers are replaced, busy ones finish with their old functions."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from pools_for_tests import TASK, Zygote, running

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.function_list import encode_functions
from updraft_server.pool.bindings import Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, Owner
from updraft_server.pool.pool import Pool


async def load_again(pool: Pool, zygote: Zygote) -> None:
    """Let another zygote greet the pool."""
    before = pool.zygote_pid
    zygote.hello = dataclasses.replace(zygote.hello, pid=before + 1, generation=zygote.hello.generation + 1)
    zygote.hang_up()
    await until(pool, lambda: pool.zygote_pid != before)


async def hang_up(pool: Pool, zygote: Zygote) -> None:
    """Let the same zygote greet the pool again."""
    before = pool.zygote_pid
    zygote.hello = dataclasses.replace(zygote.hello, pid=before + 1)
    zygote.hang_up()
    await until(pool, lambda: pool.zygote_pid != before)


async def test_workers_that_wait_are_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, zygote):
        await until(pool, lambda: pool.fresh == 1)
        before = set(zygote.living)
        await load_again(pool, zygote)
        with pytest.raises(NoIdleWorker):
            await pool.lease(None)
        await until(pool, lambda: (pool.idle, pool.fresh) == (2, 1))
        await until(pool, lambda: len(pool.workers) == 3)
        assert not before & set(zygote.living)


async def test_a_worker_that_works_ends_with_its_exchange_and_takes_no_place_until_then(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        working = await pool.lease(None)
        await load_again(pool, zygote)
        await until(pool, lambda: pool.idle == 1)
        assert working.worker in zygote.living
        other = await pool.lease(None)
        assert other.worker != working.worker
        working.release(LeaseOutcome.CLEAN)
        await working.death
        other.release(LeaseOutcome.CLEAN)
        assert (pool.idle, list(zygote.living)) == (1, [other.worker])


async def test_a_spare_of_a_task_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path, workers_per_task=2) as (pool, zygote):
        first, spare = await pool.lease(TASK), await pool.lease(TASK)
        spare.release(LeaseOutcome.CLEAN)
        await load_again(pool, zygote)
        await spare.death
        assert (await pool.lease(TASK)).worker not in (first.worker, spare.worker)


async def test_workers_that_wait_for_a_call_of_models_that_have_gone_away_are_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        batched = encode_functions([FunctionDescription(name="f", batched=True)])
        zygote.hello = dataclasses.replace(zygote.hello, functions=batched)
        await hang_up(pool, zygote)
        assert zygote.forks == 2
        working, of_a_session = await pool.lease(None), await pool.lease(None, Binding(Owner("tenant", "app", "s")))
        of_a_session.release(LeaseOutcome.CLEAN)
        await hang_up(pool, zygote)
        assert zygote.forks == 2
        working.release(LeaseOutcome.CLEAN)
        await hang_up(pool, zygote)
        await until(pool, lambda: zygote.forks == 3)
        await until(pool, lambda: set(zygote.living) == {of_a_session.worker, "w-3"})


async def test_the_same_functions_stay_with_their_workers(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        zygote.hello = dataclasses.replace(zygote.hello, pid=7)
        zygote.hang_up()
        await until(pool, lambda: pool.zygote_pid == 7)
        assert (pool.idle, zygote.forks) == (1, 1)


async def test_an_extra_worker_that_its_zygote_did_not_live_to_fork_is_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        await pool.lease(TASK)
        zygote.may_fork = False
        asking = asyncio.create_task(pool.lease(TASK))
        await zygote.held_back.get()
        zygote.may_fork = True
        await load_again(pool, zygote)
        with pytest.raises(NoIdleWorker, match="the zygote has gone away"):
            await asking
