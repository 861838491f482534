# SPDX-License-Identifier: Apache-2.0
"""Spare workers for an owner that comes to a pool whose workers belong to others."""

import asyncio
from pathlib import Path

import pytest
from pools_for_tests import TASK, running

from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, Owner
from updraft_server.pool.pool import Pool

A, B, C = (Binding(Owner("tenant", application, "")) for application in "abc")
ANONYMOUS = Binding(Owner("tenant", "", ""))


async def used_by(pool: Pool, *bindings: Binding) -> list[str]:
    """Let each owner have a worker at the same time, and return the workers' names."""
    leases = [await pool.lease(None, binding) for binding in bindings]
    for lease in leases:
        lease.release(LeaseOutcome.CLEAN)
    return [lease.worker for lease in leases]


def state_of(pool: Pool, worker: str) -> str:
    return next(info.state for info in pool.workers if info.worker == worker)


async def turns() -> None:
    """Run the loop for more turns than anything needs that waits for nothing outside."""
    for _ in range(100):
        await asyncio.sleep(0)


async def whole(pool: Pool, fresh: int = 1) -> None:
    await until(pool, lambda: pool.fresh == fresh)


async def test_fresh_workers_are_nothing_that_the_pool_can_run(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=3) as (pool, zygote):
        assert pool.starting == 0
        await whole(pool, 3)
        assert (pool.idle, pool.busy, pool.starting, zygote.forks) == (2, 0, 0, 5)
        for _ in range(2):
            await pool.lease(None, A)
        with pytest.raises(NoIdleWorker, match="all workers are busy"):
            await pool.lease(None, B)
        assert (pool.fresh, sorted(info.state for info in pool.workers)) == (3, ["busy"] * 2 + ["fresh"] * 3)


async def test_a_new_owner_gets_a_fresh_worker_at_once_in_the_place_of_an_idle_one(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        (of_a,) = await used_by(pool, A)
        (fresh,) = (info.worker for info in pool.workers if info.state == "fresh")
        zygote.may_fork = False
        # Let the pool handle the release, so that later events have to wake it on their own.
        await turns()
        lease = await pool.lease(None, B)
        assert (lease.worker, pool.busy, pool.idle) == (fresh, 1, 0)
        # The pool starts another spare as soon as this one has started, and no sooner.
        request = await zygote.held_back.get()
        await turns()
        assert (zygote.held_back.empty(), pool.starting, state_of(pool, of_a)) == (True, 0, "spare")
        zygote.fork(request)
        await whole(pool)
        assert len(zygote.living) == 3


@pytest.mark.parametrize(("fresh_workers", "is_left"), [(2, True), (1, False)])
async def test_the_last_of_several_fresh_workers_is_left_for_others(
    tmp_path: Path, fresh_workers: int, is_left: bool
) -> None:
    async with running(tmp_path, workers=2, fresh_workers=fresh_workers) as (pool, zygote):
        await whole(pool, fresh_workers)
        zygote.may_fork = False
        await used_by(pool, A, A)
        for _ in range(fresh_workers - is_left):
            await pool.lease(None, B, leave_fresh=1)
        assert pool.fresh == is_left
        with pytest.raises(NoIdleWorker):
            await pool.lease(None, C, leave_fresh=1)


async def test_idle_workers_of_another_owner_and_fresh_ones_are_not_leased_as_idle(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, _zygote):
        await whole(pool, 1)
        await used_by(pool, A, A)
        with pytest.raises(NoIdleWorker, match="can serve the owner"):
            await pool.lease_idle(B)
        leases = [await pool.lease_idle(A), await pool.lease_idle(A)]
        assert len({lease.worker for lease in leases}) == 2
        with pytest.raises(NoIdleWorker):
            await pool.lease_idle(A)


async def test_an_owner_that_finds_no_fresh_worker_waits_for_the_one_that_starts(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        of_a = await used_by(pool, A, A)
        zygote.may_fork = False
        lease = await pool.lease(None, B)
        for _ in range(3):
            with pytest.raises(NoIdleWorker, match="can serve the owner"):
                await pool.lease(None, C)
        await turns()
        assert of_a[1] in zygote.living, "nobody is robbed of a worker for one that is not there yet"
        zygote.fork(await zygote.held_back.get())
        await whole(pool)
        assert (await pool.lease(None, C)).worker not in {*of_a, lease.worker}
        assert state_of(pool, of_a[1]) == "spare"


async def test_an_owner_that_comes_back_gets_the_worker_whose_place_others_took(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        (of_a,) = await used_by(pool, A)
        (of_b,) = await used_by(pool, B)
        await whole(pool)
        forks = zygote.forks
        for _ in range(3):
            assert await used_by(pool, A) == [of_a]
            assert await used_by(pool, B) == [of_b]
        assert (zygote.forks, pool.idle, pool.fresh) == (forks, 1, 1)
        lease = await pool.lease(None, A)
        with pytest.raises(NoIdleWorker, match="all workers are busy"):
            await pool.lease(None, B)
        lease.release(LeaseOutcome.CLEAN)


async def test_a_pool_keeps_no_more_spares_than_it_has_workers(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, zygote):
        workers = []
        for number in range(6):
            await whole(pool)
            workers += await used_by(pool, Binding(Owner("tenant", f"app-{number}", "")))
        await turns()
        assert [state_of(pool, worker) for worker in workers[2:]] == ["spare", "spare", "idle", "idle"]
        assert not set(workers[:2]) & set(zygote.living)


async def test_an_owner_that_comes_back_soon_keeps_its_worker_while_many_others_take_turns(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, _):
        others = [Binding(Owner("tenant", f"app-{number}", "")) for number in range(12)]
        seen = []
        for number in range(24):
            await whole(pool)
            await used_by(pool, others[number % 12])
            if number % 4 == 3:
                await whole(pool)
                seen += await used_by(pool, A)
        # The pool cannot foresee the owner's first return.
        assert len(set(seen[1:])) == 1


async def test_a_task_gets_no_spare_beyond_the_extra_workers_of_the_pool(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, extra_workers=0, fresh_workers=2) as (pool, _):
        await whole(pool, 2)
        await used_by(pool, A, A)
        await used_by(pool, B, B)
        await pool.lease(TASK, A)
        with pytest.raises(NoIdleWorker, match="there are 0 extra workers, the maximum for the pool"):
            await pool.lease(TASK, A)


async def test_a_worker_of_registered_functions_ends_when_it_gives_way(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        (registered,) = await used_by(pool, REGISTERED)
        await used_by(pool, A)
        await turns()
        assert registered not in zygote.living


async def test_without_fresh_workers_an_idle_worker_ends_for_a_new_owner(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1, fresh_workers=0) as (pool, zygote):
        (of_a,) = await used_by(pool, A)
        with pytest.raises(NoIdleWorker, match="can serve the owner"):
            await pool.lease(None, B)
        await until(pool, lambda: pool.idle == 1)
        await used_by(pool, B)
        assert of_a not in zygote.living


async def test_two_owners_that_take_turns_keep_their_workers(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        await used_by(pool, A, A)
        first = [await used_by(pool, binding) for binding in (B, A)]
        await whole(pool)
        forks = zygote.forks
        for _ in range(3):
            assert [await used_by(pool, binding) for binding in (B, A)] == first
        assert zygote.forks == forks


async def test_the_owner_with_most_idle_workers_gives_the_one_up_that_it_used_first(tmp_path: Path) -> None:
    async with running(tmp_path, workers=3, fresh_workers=1) as (pool, _):
        await whole(pool)
        of_b, *of_a = await used_by(pool, B, A, A)
        await used_by(pool, A)
        await used_by(pool, C)
        assert [state_of(pool, worker) for worker in (of_b, *of_a)] == ["idle", "spare", "idle"]


async def test_a_worker_was_used_until_it_was_given_back(tmp_path: Path) -> None:
    async with running(tmp_path, workers=2, fresh_workers=1) as (pool, _):
        await whole(pool)
        longer, shorter = [await pool.lease(None, A) for _ in range(2)]
        shorter.release(LeaseOutcome.CLEAN)
        longer.release(LeaseOutcome.CLEAN)
        await used_by(pool, B)
        assert [state_of(pool, lease.worker) for lease in (longer, shorter)] == ["idle", "spare"]


@pytest.mark.parametrize("order", [(REGISTERED, A), (A, REGISTERED)])
async def test_registered_functions_and_sessions_share_no_worker(
    tmp_path: Path, order: tuple[Binding, Binding]
) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, _):
        await whole(pool)
        (first,), (second,) = [await used_by(pool, binding) for binding in order]
        assert first != second
        await whole(pool)
        assert await used_by(pool, order[1]) == [second]


async def test_a_worker_of_a_client_that_names_no_application_is_used_once(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        seen = set()
        for _ in range(3):
            await whole(pool)
            seen.update(await used_by(pool, ANONYMOUS))
        assert len(seen) == 3
        await whole(pool)
        assert (seen & set(zygote.living), pool.idle) == (set(), 1)


async def test_a_spare_of_a_client_that_names_no_application_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as (pool, _):
        first, second = [await pool.lease(TASK, ANONYMOUS) for _ in range(2)]
        second.release(LeaseOutcome.CLEAN)
        assert (await pool.lease(TASK, ANONYMOUS)).worker not in {first.worker, second.worker}


async def test_a_fresh_worker_takes_the_place_of_one_that_died_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        zygote.may_fork = False
        lease = await pool.lease(None)
        lease.release(LeaseOutcome.BROKEN)
        assert (pool.idle, pool.fresh, pool.starting) == (1, 0, 0)
        zygote.fork(await zygote.held_back.get())
        await whole(pool)
        assert (pool.idle, zygote.forks) == (1, 3)


async def test_a_fresh_worker_that_dies_is_replaced_and_nothing_else_changes(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        (fresh,) = (info.worker for info in pool.workers if info.state == "fresh")
        zygote.end(fresh, 1)
        await until(pool, lambda: pool.exits["exit"] == 1 and pool.fresh == 1)
        assert (pool.idle, zygote.forks) == (1, 3)


async def test_fresh_workers_outlive_their_zygote(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        zygote.hang_up()
        # Let the loop read the packets of a real connection: it looks at sockets once a turn.
        await turns()
        assert (sorted(zygote.claimed), pool.fresh, zygote.forks) == (["w-1", "w-2"], 1, 2)


async def test_a_pool_that_closes_starts_none(tmp_path: Path) -> None:
    async with running(tmp_path, fresh_workers=1) as (pool, zygote):
        await whole(pool)
        lease = await pool.lease(None, A)
        closing = asyncio.create_task(pool.close(60.0))
        await turns()
        lease.release(LeaseOutcome.CLEAN)
        await closing
        assert (zygote.living, zygote.forks) == ({}, 2)
