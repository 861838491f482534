# SPDX-License-Identifier: Apache-2.0
"""Stops, continuations and ends of a pool's workers between exchanges, with a zygote that forks nothing."""

from collections.abc import Sequence
from pathlib import Path

from pools_for_tests import TASK, running
from structlog.testing import capture_logs

from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import Continue, Stop
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, Owner
from updraft_server.pool.pool import Pool

SESSION = Binding(Owner("tenant", "application", ""))


async def used_by(pool: Pool, binding: Binding) -> str:
    lease = await pool.lease(None, binding)
    lease.release(LeaseOutcome.CLEAN)
    return lease.worker


async def looked(pool: Pool, times: int = 2) -> None:
    """Look at the pool as a front does; all workers are idle."""
    for _ in range(times):
        pool.resting.measured(await pool.measure(pool.resting.unsettled), lambda _: "")


def states(pool: Pool) -> Sequence[str]:
    return sorted(info.state for info in pool.workers)


async def test_a_worker_is_stopped_after_its_exchange_and_continued_by_the_next(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        worker = await used_by(pool, REGISTERED)
        await looked(pool)
        # The other worker has served no exchange, so there is nothing to stop in it.
        assert (pool.idle, states(pool)) == (2, ["idle", "stopped"])
        assert await used_by(pool, REGISTERED) == worker
        assert [await zygote.told.get() for _ in range(2)] == [(Stop, worker), (Continue, worker)]
        await used_by(pool, REGISTERED)
        assert zygote.told.empty()


async def test_a_worker_that_a_task_gets_beside_its_own_is_continued_too(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as (pool, zygote):
        leases = [await pool.lease(TASK) for _ in range(2)]
        leases[0].release(LeaseOutcome.CLEAN)
        await looked(pool)
        assert states(pool) == ["busy", "stopped"]
        again = await pool.lease(TASK)
        assert [await zygote.told.get() for _ in range(2)] == [(Stop, again.worker), (Continue, again.worker)]


async def test_the_next_zygote_is_told_to_continue_what_has_got_an_exchange_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        worker = await used_by(pool, REGISTERED)
        await looked(pool)
        assert await zygote.told.get() == (Stop, worker)
        zygote.hang_up()
        await until(pool, lambda: states(pool) == ["idle"])
        lease = await pool.lease(None)
        assert await zygote.told.get() == (Continue, worker)
        lease.release(LeaseOutcome.CLEAN)
        await looked(pool)
        assert await zygote.told.get() == (Stop, worker)


async def test_a_worker_with_leftovers_is_replaced_counted_and_named_in_the_log(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, zygote):
        worker = await used_by(pool, SESSION)
        with capture_logs() as logs:
            pool.resting.measured(await pool.measure([worker]), lambda _: "it had too much")
        [line] = logs
        assert line["log_level"] == "warning"
        assert (line["reason"], line["tenant"], line["application_id"]) == ("it had too much", "tenant", "application")
        await until(pool, lambda: pool.exits["leftover"] == 1 and pool.idle == 1)
        assert worker not in zygote.living
        assert sum(pool.exits.values()) == 1


async def test_a_session_that_is_to_keep_no_worker_leaves_a_new_one(tmp_path: Path) -> None:
    async with running(tmp_path, idle_seconds=0.0) as (pool, zygote):
        kept = await used_by(pool, REGISTERED)
        assert kept in zygote.living
    (tmp_path / "z.sock").unlink()
    async with running(tmp_path, idle_seconds=0.0) as (pool, zygote):
        ended = await used_by(pool, SESSION)
        await until(pool, lambda: pool.exits["pool"] == 1 and pool.idle == 1)
        assert ended not in zygote.living


async def test_a_spare_worker_that_computes_leaves_the_number_of_quiet_ones_alone(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, _):
        leases = [await pool.lease(TASK) for _ in range(3)]
        for lease in leases[1:]:
            lease.release(LeaseOutcome.CLEAN)
        spare = leases[2].worker
        for seconds in range(3):
            usage = WorkerUsage(0, "", processor_seconds=float(seconds))
            pool.resting.measured({spare: usage}, lambda _: "")
        assert (pool.resting.computing, pool.quiet, pool.computing) == (1, 1, 2)


async def test_a_worker_counts_for_the_tenant_of_its_last_exchange_and_is_stopped_for_its_cap(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2) as (pool, zygote):
        lease = await pool.lease(None, SESSION)
        lease.count_for("tenant")
        lease.release(LeaseOutcome.CLEAN)
        pool.resting.stop_all_but(0, "other")
        assert zygote.told.empty()
        pool.resting.stop_all_but(0, "tenant")
        assert await zygote.told.get() == (Stop, lease.worker)
        assert await used_by(pool, SESSION) == lease.worker
        assert await zygote.told.get() == (Continue, lease.worker)
