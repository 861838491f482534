# SPDX-License-Identifier: Apache-2.0
"""Pool before and during its start, and its errors if it does not start."""

import asyncio
from pathlib import Path

import pytest
from pools_for_tests import Zygote
from zygote_paths import ZygotesAt

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.function_list import encode_functions
from updraft_server.ipc.zygote_packets import (
    Hello,
)
from updraft_server.pool.interface import until
from updraft_server.pool.leases import (
    PoolError,
    PoolSettings,
)
from updraft_server.pool.pool import Pool

DOUBLE = FunctionDescription(name="double", version="1", doc="Doubles.")


async def test_a_new_pool_has_counted_nothing(tmp_path: Path) -> None:
    pool = Pool(PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "z.sock")), lambda _: None, lambda _: None)
    assert (pool.idle, pool.busy, pool.starting, set(pool.exits.values())) == (0, 0, 0, {0})
    assert (pool.zygote_pid, pool.python_version, pool.functions) == (0, "", ())
    await pool.close(0.0)


async def test_a_pool_that_has_closed_leaves_no_task_behind(tmp_path: Path) -> None:
    pool = Pool(PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "z.sock")), lambda _: None, lambda _: None)
    starting = asyncio.create_task(pool.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    await pool.close(0.0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_pool_that_closes_while_it_starts_ends_its_starts_and_lets_the_zygote_go(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "z.sock")
    zygote.may_fork = False
    others = asyncio.all_tasks()
    pool = Pool(PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "z.sock")), lambda _: None, lambda _: None)
    starting = asyncio.create_task(pool.start())
    async with asyncio.timeout(60):
        await zygote.held_back.get()
    starting.cancel()
    await asyncio.wait([starting])
    await pool.close(0.0)
    assert asyncio.all_tasks() == others
    assert pool._zygote.hello is None
    await zygote.close()


@pytest.mark.parametrize(
    ("failure", "reason"), [("", "the rest is still starting"), ("no memory", "no memory")], ids=["slow", "failed"]
)
async def test_a_pool_that_starts_too_late_says_how_far_it_came_and_why(
    tmp_path: Path, failure: str, reason: str
) -> None:
    zygote = Zygote(tmp_path / "z.sock")
    zygote.may_fork = False
    settings = PoolSettings(workers=2, zygotes=ZygotesAt(tmp_path / "z.sock"), start_timeout_seconds=2.0)
    pool = Pool(settings, lambda _: None, lambda _: None)
    pool._starts.last_failure = failure
    with pytest.raises(PoolError, match=f"0 of 2 workers were ready within 2 seconds: {reason}"):
        await pool.start()
    await pool.close(0.0)
    await zygote.close()


async def test_a_pool_without_a_zygote_says_so_when_it_does_not_start(tmp_path: Path) -> None:
    settings = PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "none"), start_timeout_seconds=0.05)
    pool = Pool(settings, lambda _: None, lambda _: None)
    pool._starts.last_failure = "no memory"
    with pytest.raises(PoolError, match="cannot reach the zygote: No such file"):
        await pool.start()
    await pool.close(0.0)


async def test_a_pool_waits_for_a_zygote_for_as_long_as_that_loads(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "z.sock")
    zygote.has_loaded.clear()
    settings = PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "z.sock"), start_timeout_seconds=1.5)
    pool = Pool(settings, lambda _: None, lambda _: None)
    async with asyncio.timeout(60):
        starting = asyncio.create_task(pool.start())
        assert not (await asyncio.wait([starting], timeout=2.0))[0]
        # After the supervisor gives up on a zygote, its successor loads for just as long.
        zygote.hang_up()
        assert not (await asyncio.wait([starting], timeout=2.0))[0]
        zygote.has_loaded.set()
        await starting
    assert pool.idle == 1
    await pool.close(0.0)
    await zygote.close()


async def test_a_worker_that_is_leased_while_the_pool_starts_counts_as_started(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "z.sock")
    zygote.may_fork = False
    pool = Pool(PoolSettings(workers=2, zygotes=ZygotesAt(tmp_path / "z.sock")), lambda _: None, lambda _: None)
    async with asyncio.timeout(60):
        starting = asyncio.create_task(pool.start())
        requests = [await zygote.held_back.get() for _ in range(2)]
        zygote.fork(requests[0])
        await until(pool, lambda: pool.idle == 1)
        await pool.lease(None)
        assert not starting.done()
        zygote.fork(requests[1])
        await starting
        assert (pool.idle, pool.busy) == (1, 1)
        await pool.close(0.0)
        await zygote.close()


async def test_what_the_zygote_says_of_itself_is_the_pools(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "z.sock")
    zygote.hello = Hello(77, "3.11", "4.1.4", encode_functions([DOUBLE]))
    pool = Pool(PoolSettings(workers=1, zygotes=ZygotesAt(tmp_path / "z.sock")), lambda _: None, lambda _: None)
    async with asyncio.timeout(60):
        await pool.start()
        assert (pool.zygote_pid, pool.python_version, pool.pyspark_version) == (77, "3.11", "4.1.4")
        assert pool.functions == (DOUBLE,)
        await pool.close(0.0)
        await zygote.close()
