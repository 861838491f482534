# SPDX-License-Identifier: Apache-2.0
"""Limit on waiting exchanges, and which of them gives way when the queue is full."""

import asyncio
import dataclasses
import gc
from contextlib import ExitStack

import pytest
from admission_arrivals import TASK, Arrivals, PoolOf, Source, acquire, admission, settled
from fake_pool import FakePool

from updraft.errors import PoolBusyError, PoolFullError, PoolUnavailableError, ProtocolError
from updraft.service.tenants import Caps, TenantCaps
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker


@pytest.mark.parametrize(
    ("largest", "own", "loser"), [(1, 0, "b"), (2, 0, "a"), (2, 1, "b"), (3, 1, "a"), (3, 2, "b"), (4, 2, "a")]
)
async def test_a_full_queue_makes_room_only_if_tenants_come_closer(
    pool_of: PoolOf, largest: int, own: int, loser: str
) -> None:
    queue = admission(pool_of(1), queue_limit=largest + own)
    arrivals = Arrivals(queue)
    await arrivals.come("running", tenant="c")
    for number in range(largest):
        await arrivals.come(f"a{number}", tenant="a")
    for number in range(own + 1):
        await arrivals.come(f"b{number}", tenant="b")
    refused = [name for name, task in arrivals.tasks.items() if task.done() and name != "running"]
    assert refused == [{"a": f"a{largest - 1}", "b": f"b{own}"}[loser]]
    with pytest.raises(PoolFullError):
        await arrivals.tasks[refused[0]]
    assert queue.waiting == queue.queue_limit


async def test_a_task_that_holds_no_worker_has_no_place_in_a_full_queue(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1), queue_limit=1))
    await arrivals.come("running")
    await arrivals.come("waiting")
    await arrivals.come("refused", task=TASK)
    with pytest.raises(PoolFullError):
        await arrivals.tasks["refused"]


async def test_a_queue_that_siblings_have_overfilled_takes_nobody_else(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=1)
    with ExitStack() as places:
        first = await acquire(queue, "a", TASK)
        for _ in range(3):
            places.enter_context(queue.place("a", TASK))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("a", None))
        first.release(LeaseOutcome.CLEAN)


async def test_a_waiter_that_is_cancelled_as_it_is_refused_stays_cancelled(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("waiting")
    queue.drain()
    arrivals.tasks["waiting"].cancel()
    await settled()
    assert arrivals.tasks["waiting"].cancelled()


async def test_a_full_queue_refuses_with_a_hint(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=1)
    arrivals = Arrivals(queue)
    await arrivals.come("running", tenant="a")
    await arrivals.come("waiting", tenant="a")
    with pytest.raises(PoolFullError, match="1 exchanges wait") as full:
        await acquire(queue, "a", None)
    assert full.value.retry_after_milliseconds == 500


async def test_a_full_queue_refuses_before_anything_was_prepared(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=1)
    running = await acquire(queue, "a", None)
    with queue.place("a", None):
        with pytest.raises(PoolFullError), queue.place("a", None):
            pass
        assert queue.waiting == 1
    assert queue.waiting == 0
    running.release(LeaseOutcome.CLEAN)


async def test_as_many_may_prepare_as_workers_are_idle_and_may_wait(pool_of: PoolOf) -> None:
    queue = admission(pool_of(2), queue_limit=1)
    with ExitStack() as places:
        for _ in range(3):
            places.enter_context(queue.place("a", None))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("a", None))


async def test_an_exchange_that_prepares_holds_nobody_up(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    with queue.place("slow", None):
        grant = await acquire(queue, "quick", None)
        waiting = asyncio.create_task(acquire(queue, "quick", None))
        await settled()
        grant.release(LeaseOutcome.CLEAN)
        (await waiting).release(LeaseOutcome.CLEAN)


async def test_a_place_that_another_tenant_needed_is_refused_when_it_wants_its_worker(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=3)
    running = await acquire(queue, "a", None)
    with ExitStack() as places:
        *_, newest, _ = [places.enter_context(queue.place(tenant, None)) for tenant in "aaab"]
        assert queue.waiting == 3
        with pytest.raises(PoolFullError):
            await queue.worker(newest)
    running.release(LeaseOutcome.CLEAN)


async def test_a_task_with_many_exchanges_counts_against_the_limits_like_everybody(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=9)
    with ExitStack() as places:
        first = await acquire(queue, "a", TASK)
        for _ in range(9):
            # Equal but not identical: each exchange has a command of its own.
            places.enter_context(queue.place("a", dataclasses.replace(TASK)))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("a", dataclasses.replace(TASK)))
        first.release(LeaseOutcome.CLEAN)


async def test_exchanges_of_a_task_that_holds_a_worker_do_not_fill_the_queue_without_bound(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=2)
    with ExitStack() as places:
        first = await acquire(queue, "a", TASK)
        for _ in range(8):
            places.enter_context(queue.place("a", dataclasses.replace(TASK), held_bytes=60))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("a", dataclasses.replace(TASK), held_bytes=60))
        first.release(LeaseOutcome.CLEAN)


async def test_what_is_prepared_is_given_up_once_the_place_is_lost(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    given_up = asyncio.Event()

    async def upload() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            # The cleanup takes a turn of the loop, and the queue waits for it.
            await asyncio.sleep(0)
            given_up.set()

    with queue.place("a", None) as place:
        preparing = asyncio.create_task(place.unless_lost(upload()))
        await settled()
        queue.drain()
        with pytest.raises(PoolUnavailableError):
            await preparing
    assert given_up.is_set()


@pytest.mark.parametrize("leaves", [False, True])
async def test_work_that_fails_as_its_place_goes_is_no_stray_error(pool_of: PoolOf, leaves: bool) -> None:
    """Python itself would log an exception that is never retrieved, and not in the log's format."""
    strays: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ProtocolError("the client ended its stream") from None

    async def goes() -> None:
        queue = admission(pool_of(1))
        with queue.place("a", None) as place:
            preparing = asyncio.create_task(place.unless_lost(fails()))
            await settled()
            if leaves:
                preparing.cancel()
            else:
                queue.drain()
            with pytest.raises(asyncio.CancelledError if leaves else PoolUnavailableError):
                await preparing

    await goes()
    # The event loop keeps a reference to the last callback.
    await settled()
    gc.collect()
    assert not strays


async def test_a_drain_refuses_who_prepares(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    with queue.place("a", None) as place:
        queue.drain()
        with pytest.raises(PoolUnavailableError):
            await queue.worker(place)


async def test_commands_that_wait_take_no_more_memory_than_they_may(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    running = await acquire(queue, "a", None, held_bytes=1000)
    waiting = [asyncio.create_task(acquire(queue, "a", None, held_bytes=size)) for size in (80, 10, 10)]
    await settled()
    for size in (1, 4):
        with pytest.raises(PoolFullError):
            await acquire(queue, "a", None, held_bytes=size)
    running.release(LeaseOutcome.CLEAN)
    for grant in waiting:
        (await grant).release(LeaseOutcome.CLEAN)


@pytest.mark.parametrize(
    ("held", "newcomer", "losers"),
    [
        (["a40", "a50"], "b20", ["a50"]),
        (["a20", "a20", "a20", "a20", "a20"], "b40", ["a20", "a20"]),
        (["a30", "a20", "a30"], "b60", ["b60"]),
        (["a50", "b40"], "c20", ["a50"]),
        (["a20", "b20", "c20", "d20", "e20"], "f10", ["a20"]),
        (["a50", "a50"], "b99", ["b99"]),
        (["a40", "b50"], "b20", ["b20"]),
        (["a50", "b10", "b10", "b10"], "b30", ["b30"]),
    ],
)
async def test_memory_for_a_newcomer_is_taken_from_the_tenants_that_hold_most(
    pool_of: PoolOf, held: list[str], newcomer: str, losers: list[str]
) -> None:
    queue = admission(pool_of(1))
    running = await acquire(queue, "running", None)
    waiting = []
    for name in (*held, newcomer):
        waiting.append((name, asyncio.create_task(acquire(queue, name[0], None, held_bytes=int(name[1:])))))
        await settled()
    assert [name for name, task in waiting if task.done()] == losers
    for _, task in waiting:
        task.cancel()
    ended = await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
    assert sum(isinstance(end, PoolFullError) for end in ended) == len(losers)
    running.release(LeaseOutcome.CLEAN)


async def test_who_overtakes_makes_no_room_for_a_newcomer(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    with ExitStack() as places:
        first = await acquire(queue, "a", TASK)
        sibling = places.enter_context(queue.place("a", dataclasses.replace(TASK), held_bytes=90))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("b", None, held_bytes=20))
        assert not sibling.granted.done()
        first.release(LeaseOutcome.CLEAN)


async def test_a_tenant_that_fills_the_queue_makes_room_for_another(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), queue_limit=3)
    arrivals = Arrivals(queue)
    await arrivals.come("running", tenant="a")
    for name in ("a1", "a2", "a3"):
        await arrivals.come(name, tenant="a")
    await arrivals.come("b1", tenant="b")
    with pytest.raises(PoolFullError):
        await arrivals.tasks["a3"]
    await arrivals.serve_all()
    assert arrivals.granted == ["running", "b1", "a1", "a2"]


async def test_a_pool_without_a_free_worker_is_busy_for_an_exchange_that_may_not_wait(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    queue.check_free("a", None)
    with queue.place("a", None) as first, queue.place("a", None) as second:
        # A place in the queue does not occupy the worker.
        queue.check_free("a", None)
        running = await queue.worker(first, may_wait=False)
        with pytest.raises(PoolBusyError):
            queue.check_free("a", None)
        with pytest.raises(PoolBusyError):
            await queue.worker(second, may_wait=False)
    assert queue.waiting == 0
    running.release(LeaseOutcome.CLEAN)


async def test_a_pool_is_busy_for_newcomers_while_others_wait_for_its_free_worker(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    source.refusals[TASK] = NoIdleWorker("the worker of another owner has to end first")
    queue = admission(source)
    arrivals = Arrivals(queue)
    await arrivals.come("waiting", task=TASK)
    assert source.idle
    with pytest.raises(PoolBusyError):
        queue.check_free("a", None)
    arrivals.tasks["waiting"].cancel()


async def test_a_pool_that_drains_is_not_busy_but_gone(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    running = await acquire(queue, "a", None)
    queue.drain()
    with pytest.raises(PoolUnavailableError):
        queue.check_free("a", None)
    running.release(LeaseOutcome.CLEAN)


async def test_a_backlog_of_a_tenant_at_its_cap_does_not_make_the_pool_busy_for_others(pool_of: PoolOf) -> None:
    caps = Caps(lambda tenant: TenantCaps(max_workers=1) if tenant == "capped" else TenantCaps())
    queue = admission(pool_of(2), caps=caps)
    arrivals = Arrivals(queue)
    for number in range(4):
        await arrivals.come(f"exchange {number}", tenant="capped")
    queue.check_free("other", None)
    with pytest.raises(PoolBusyError):
        queue.check_free("capped", None)


async def test_a_task_that_holds_a_worker_need_not_wait_for_another_one(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    first = await acquire(queue, "a", TASK)
    queue.check_free("a", TASK)
    with queue.place("a", TASK) as place:
        second = await queue.worker(place, may_wait=False)
    for grant in (first, second):
        grant.release(LeaseOutcome.CLEAN)


async def test_a_helper_takes_no_worker_from_another_owner(pool_of: PoolOf) -> None:
    class OfAnother(FakePool):
        async def lease_idle(self, binding: Binding) -> Lease:
            raise NoIdleWorker("no idle worker can serve the owner")

    queue = admission(OfAnother())
    with queue.place("a", None, is_helper=True) as place, pytest.raises(PoolBusyError, match="can serve the owner"):
        await queue.worker(place, may_wait=False)
    assert queue.waiting == 0
    (await acquire(queue, "a", None)).release(LeaseOutcome.CLEAN)
