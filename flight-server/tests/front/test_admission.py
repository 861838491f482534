# SPDX-License-Identifier: Apache-2.0
import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest

from updraft.errors import PoolFullError, PoolUnavailableError
from updraft_server.front.admission import Admission, AdmissionLimits, Grant, WorkerSource
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, PoolError, TaskKey
from updraft_server.pool.testing import FakePool

PoolOf = Callable[[int], FakePool]

TASK = TaskKey("app", 1, 1)


@pytest.fixture
async def pool_of() -> AsyncIterator[PoolOf]:
    """`pool_of(workers)`: a pool that is closed when the test ends."""
    pools: list[FakePool] = []

    def make(workers: int) -> FakePool:
        pools.append(FakePool(workers))
        return pools[-1]

    yield make
    for pool in pools:
        await pool.close(0)


class Source:
    """The workers of a FakePool, which a test can refuse to a task; notes what is asked for, and how much at once."""

    def __init__(self, pool: FakePool) -> None:
        self.refusals: dict[TaskKey | None, Exception] = {}
        self.bindings: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._pool = pool
        self.subscribe = pool.subscribe

    @property
    def idle(self) -> int:
        return self._pool.idle

    async def lease(self, task: TaskKey | None, binding: str) -> Lease:
        self._at_once += 1
        self.bindings.append(binding)
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            if task in self.refusals:
                raise self.refusals[task]
            return await self._pool.lease(task, binding)
        finally:
            self._at_once -= 1


def admission(pool: WorkerSource, queue_limit: int = 100) -> Admission:
    return Admission(pool, AdmissionLimits(queue_limit=queue_limit, queue_bytes=100, retry_after_milliseconds=500))


async def acquire(queue: Admission, tenant: str, task: TaskKey | None, held_bytes: int = 0) -> Grant:
    with queue.place(tenant, task, held_bytes) as place:
        return await queue.worker(place)


class Arrivals:
    """Exchanges that come one after the other, and the order in which they were granted a worker."""

    def __init__(self, queue: Admission) -> None:
        self.granted: list[str] = []
        self.grants: dict[str, Grant] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._queue = queue

    async def come(self, name: str, tenant: str = "", task: TaskKey | None = None) -> None:
        self.tasks[name] = asyncio.create_task(self._acquire(name, tenant or name, task))
        await settled()

    async def _acquire(self, name: str, tenant: str, task: TaskKey | None) -> None:
        self.grants[name] = await acquire(self._queue, tenant, task)
        self.granted.append(name)

    async def leave(self, name: str) -> None:
        self.grants.pop(name).release(LeaseOutcome.CLEAN)
        await settled()

    async def serve_all(self) -> None:
        while self.grants:
            await self.leave(next(iter(self.grants)))


async def settled() -> None:
    """Let everything run that can: nothing here waits for the outside."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_idle_worker_is_granted_at_once(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    grant = await acquire(queue, "a", None)
    assert grant.lease.worker
    assert queue.waiting == 0


async def test_who_waits_gets_the_worker_that_becomes_idle(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("first")
    await arrivals.come("second")
    assert arrivals.granted == ["first"]
    await arrivals.leave("first")
    assert arrivals.granted == ["first", "second"]


async def test_tenants_take_turns_however_many_each_has_waiting(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("running", tenant="a")
    for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
        await arrivals.come(name, tenant=name[0])
    await arrivals.serve_all()
    assert arrivals.granted == ["running", "a1", "b1", "c1", "a2", "c2", "a3"]


async def test_nobody_overtakes_the_queue_when_a_worker_is_idle(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    arrivals = Arrivals(admission(pool))
    await arrivals.come("running")
    await arrivals.come("waiting")
    arrivals.grants.pop("running").release(LeaseOutcome.CLEAN)
    await arrivals.come("newcomer")
    assert arrivals.granted == ["running", "waiting"]


async def test_a_task_that_holds_a_worker_gets_another_past_the_queue(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("first", task=TASK)
    await arrivals.come("stranger")
    await arrivals.come("sibling", task=TASK)
    assert arrivals.granted == ["first", "sibling"]


async def test_siblings_that_wait_together_are_granted_together(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("running")
    await arrivals.come("first", tenant="a", task=TASK)
    await arrivals.come("stranger", tenant="b")
    await arrivals.come("sibling", tenant="a", task=TASK)
    await arrivals.leave("running")
    assert arrivals.granted == ["running", "first", "sibling"]


async def test_a_task_whose_worker_is_back_waits_like_everybody(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("first", task=TASK)
    await arrivals.come("stranger")
    await arrivals.leave("first")
    await arrivals.come("again", task=TASK)
    assert arrivals.granted == ["first", "stranger"]


async def test_a_task_whose_worker_is_back_waits_behind_who_came_before_it(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("first", task=TASK)
    await arrivals.leave("first")
    await arrivals.come("running")
    await arrivals.come("stranger")
    await arrivals.come("again", task=TASK)
    await arrivals.leave("running")
    assert arrivals.granted == ["first", "running", "stranger"]
    await arrivals.leave("stranger")
    await arrivals.come("late stranger")
    await arrivals.come("sibling", task=TASK)
    assert arrivals.granted[3:] == ["again", "sibling"]


async def test_a_task_that_was_refused_a_worker_holds_none(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    arrivals = Arrivals(admission(source))
    source.refusals[TASK] = PoolError("the zygote is gone")
    await arrivals.come("refused", task=TASK)
    with pytest.raises(PoolUnavailableError):
        await arrivals.tasks["refused"]
    source.refusals.clear()
    await arrivals.come("running")
    await arrivals.come("stranger")
    await arrivals.come("again", task=TASK)
    await arrivals.leave("running")
    assert arrivals.granted == ["running", "stranger"]


async def test_a_task_that_the_pool_has_no_worker_for_holds_up_nobody_behind_it(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    arrivals = Arrivals(admission(source))
    await arrivals.come("running")
    source.refusals[TASK] = NoIdleWorker("none for this task")
    await arrivals.come("waiting", task=TASK)
    await arrivals.come("stranger")
    await arrivals.leave("running")
    assert arrivals.granted == ["running", "stranger"]
    source.refusals.clear()
    await arrivals.leave("stranger")
    assert arrivals.granted == ["running", "stranger", "waiting"]


async def test_a_newcomer_gets_the_idle_worker_that_who_waits_may_not_have(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    arrivals = Arrivals(admission(source))
    source.refusals[TASK] = NoIdleWorker("none for this task")
    await arrivals.come("waiting", task=TASK)
    await arrivals.come("stranger")
    assert arrivals.granted == ["stranger"]


async def test_who_waits_gets_a_worker_with_what_it_asked_to_have_loaded(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    queue = admission(source)
    running = await acquire(queue, "a", None)
    with queue.place("a", None) as place:
        waiting = asyncio.create_task(queue.worker(place, "files"))
        await settled()
        running.release(LeaseOutcome.CLEAN)
        await waiting
    assert source.bindings == ["", "files", "files"], "at once, and when its turn has come"


async def test_a_pool_that_fails_is_told_to_who_waits_and_the_next_is_served(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    queue = admission(source)
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("waiting", task=TASK)
    await arrivals.come("next")
    source.refusals[TASK] = PoolError("the zygote is gone")
    await arrivals.leave("running")
    with pytest.raises(PoolUnavailableError, match="the zygote is gone"):
        await arrivals.tasks["waiting"]
    assert arrivals.granted == ["running", "next"]
    assert queue.waiting == 0


async def test_workers_that_become_idle_at_once_are_granted_one_after_the_other(pool_of: PoolOf) -> None:
    source = Source(pool_of(2))
    arrivals = Arrivals(admission(source))
    for name in ("one", "other", "a", "b"):
        await arrivals.come(name)
    for name in ("one", "other"):
        arrivals.grants.pop(name).release(LeaseOutcome.CLEAN)
        await asyncio.sleep(0)
    await settled()
    assert arrivals.granted == ["one", "other", "a", "b"]
    assert source.most_at_once == 1


async def test_a_newcomer_does_not_take_the_worker_that_who_waits_is_about_to_get(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("waiting")
    with queue.place("newcomer", None) as place:
        arrivals.grants.pop("running").release(LeaseOutcome.CLEAN)
        with pytest.raises(TimeoutError):
            # As far as it comes before anybody else runs.
            async with asyncio.timeout(0):
                await queue.worker(place)
    await settled()
    assert arrivals.granted == ["running", "waiting"]


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
            # Equal, not the same: each exchange has a command of its own.
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
            # Cleaning up takes its time, and is waited for.
            await asyncio.sleep(0)
            given_up.set()

    with queue.place("a", None) as place:
        preparing = asyncio.create_task(place.unless_lost(upload()))
        await settled()
        queue.drain()
        with pytest.raises(PoolUnavailableError):
            await preparing
    assert given_up.is_set()


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
    assert arrivals.granted == ["running", "a1", "b1", "a2"]


async def test_a_cancelled_waiter_leaves_the_queue(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("waiting")
    arrivals.tasks["waiting"].cancel()
    await settled()
    assert queue.waiting == 0
    await arrivals.leave("running")
    assert arrivals.granted == ["running"]


async def test_a_waiter_cancelled_while_it_is_granted_gives_the_worker_back(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    queue = admission(pool)
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("cancelled")
    await arrivals.come("next")

    def cancel_while_granted() -> None:
        if len(pool.leases) == 2:
            arrivals.tasks["cancelled"].cancel()

    pool.subscribe(cancel_while_granted)
    await arrivals.leave("running")
    assert arrivals.granted == ["running", "next"]
    await arrivals.serve_all()
    assert pool.idle == 1


async def test_a_drain_refuses_who_waits_and_who_comes(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    arrivals = Arrivals(queue)
    await arrivals.come("running")
    await arrivals.come("waiting")
    queue.drain()
    assert queue.waiting == 0
    with pytest.raises(PoolUnavailableError):
        await arrivals.tasks["waiting"]
    with pytest.raises(PoolUnavailableError):
        await acquire(queue, "late", None)
    assert queue.waiting == 0


async def test_a_pool_that_fails_is_unavailable() -> None:
    class Broken(FakePool):
        async def lease(self, task: TaskKey | None, binding: str = "") -> Lease:
            raise PoolError("the zygote is gone")

    with pytest.raises(PoolUnavailableError, match="the zygote is gone"):
        await acquire(admission(Broken()), "a", TASK)


async def test_a_grant_is_released_once(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    grant = await acquire(admission(pool), "a", TASK)
    grant.release(LeaseOutcome.CLEAN)
    grant.release(LeaseOutcome.BROKEN)
    assert pool.leases[0].outcome is LeaseOutcome.CLEAN
    assert pool.idle == 1
