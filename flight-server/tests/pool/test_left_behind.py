# SPDX-License-Identifier: Apache-2.0
"""If all workers share /dev/shm, an owner who works alone gets a worker once those of other owners have ended."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pools_for_tests import Zygote, running

from updraft_server.pool.bindings import Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, Owner
from updraft_server.pool.pool import Pool
from updraft_server.sandbox_layers import SHARED_MEMORY

FIRST, SECOND, NAMELESS = (Binding(Owner("tenant", application, "s")) for application in ("first", "second", ""))


@asynccontextmanager
async def sharing_memory(tmp_path: Path, *, lack: str = "not mounted") -> AsyncIterator[tuple[Pool, Zygote]]:
    """Run a pool of two workers that end when the test says so, and a spare."""
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, zygote):
        zygote.hello = dataclasses.replace(zygote.hello, pid=2, sandbox=[[SHARED_MEMORY, lack]])
        zygote.hang_up()
        await until(pool, lambda: pool.zygote_pid == 2 and pool.fresh == 1)
        zygote.kills_at_once = False
        yield pool, zygote
        zygote.kills_at_once = True
        zygote.kill_all()


async def broken_off(pool: Pool, binding: Binding) -> None:
    """Run an exchange whose worker is killed."""
    lease = await pool.lease(None, binding)
    lease.release(LeaseOutcome.CANCELLED)


async def test_the_next_owner_waits_for_the_end_of_the_one_before(tmp_path: Path) -> None:
    async with sharing_memory(tmp_path) as (pool, zygote):
        await broken_off(pool, FIRST)
        waiting = asyncio.create_task(pool.lease(None, SECOND))
        await until(pool, lambda: pool.busy == 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        zygote.kill_all()
        assert (await waiting).worker in zygote.living


@pytest.mark.parametrize("binding", [FIRST, SECOND, NAMELESS], ids=["same", "another", "nameless"])
async def test_nobody_waits_for_an_owner_for_ever(tmp_path: Path, binding: Binding) -> None:
    async with sharing_memory(tmp_path) as (pool, _):
        await broken_off(pool, binding)
        if binding is FIRST:
            await pool.lease(None, FIRST)
        else:
            with pytest.raises(NoIdleWorker, match="does not end"):
                await pool.lease(None, FIRST if binding is SECOND else NAMELESS)
            assert pool.busy == 0


async def test_nobody_waits_while_another_owner_works_who_shares_the_memory_anyway(tmp_path: Path) -> None:
    async with sharing_memory(tmp_path) as (pool, _):
        await pool.lease(None, NAMELESS)
        await broken_off(pool, FIRST)
        await pool.lease(None, SECOND)


async def test_nobody_waits_where_each_worker_has_memory_of_its_own(tmp_path: Path) -> None:
    async with sharing_memory(tmp_path, lack="") as (pool, _):
        await broken_off(pool, FIRST)
        await pool.lease(None, SECOND)
