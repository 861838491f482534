# SPDX-License-Identifier: Apache-2.0
"""Order in which waiting exchanges get workers."""

import asyncio

import pytest
from admission_arrivals import TASK, Arrivals, PoolOf, Source, acquire, admission, settled
from fake_pool import FakePool

from updraft.errors import PoolUnavailableError
from updraft_server.front.queue.admission import Admission
from updraft_server.front.queue.turns import TURN_SECONDS
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, Owner, PoolError, TaskKey


class Clock:
    """Clock that stands still unless a test moves it, so that a slow machine does not end a turn."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def pass_seconds(self, seconds: float) -> None:
        self._seconds += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(Admission, "_now", lambda _: made())
    return made


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
    assert arrivals.granted == ["running", "b1", "c1", "a1", "c2", "a2", "a3"]


async def test_a_tenant_keeps_its_share_of_the_workers_while_others_wait(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(2)))
    for name in ("a1", "b1", "b2", "b3", "a2", "a3"):
        await arrivals.come(name, tenant=name[0])
    for name in ("a1", "a2", "b1"):
        await arrivals.leave(name)
    assert arrivals.granted == ["a1", "b1", "a2", "a3", "b2"]


async def test_a_tenant_with_fewer_workers_gets_the_next_whatever_its_turn(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(4)))
    for name in ("a1", "a2", "a3", "a4", "a5", "b1", "b2"):
        await arrivals.come(name, tenant=name[0])
    await arrivals.leave("a1")
    await arrivals.leave("a2")
    assert arrivals.granted == ["a1", "a2", "a3", "a4", "b1", "b2"]


async def test_owners_of_one_tenant_keep_their_shares_of_its_workers(pool_of: PoolOf) -> None:
    queue = admission(pool_of(2))
    arrivals = Arrivals(queue)
    bindings = {name: Binding(Owner("team", name, "")) for name in "ab"}
    for name in ("a1", "b1", "b2", "a2"):
        await arrivals.come(name, tenant="team", binding=bindings[name[0]])
    await arrivals.leave("a1")
    assert arrivals.granted == ["a1", "b1", "a2"]


async def test_equals_take_turns_of_a_moment_each(pool_of: PoolOf, clock: Clock) -> None:
    """Each change of owner ends a worker, because a worker serves one owner."""
    arrivals = Arrivals(admission(pool_of(1)))
    bindings = {name: Binding(Owner("", name, "")) for name in "ab"}
    for name in ("a1", "b1", "a2", "a3", "b2", "b3"):
        await arrivals.come(name, tenant=name[0], binding=bindings[name[0]])
    await arrivals.leave("a1")
    clock.pass_seconds(TURN_SECONDS)
    for name in ("a2", "b1"):
        await arrivals.leave(name)
    clock.pass_seconds(TURN_SECONDS)
    for name in ("b2", "a3"):
        await arrivals.leave(name)
    assert arrivals.granted == ["a1", "a2", "b1", "b2", "a3", "b3"]


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


async def test_who_was_refused_a_worker_keeps_its_turn(pool_of: PoolOf) -> None:
    source = Source(pool_of(1))
    arrivals = Arrivals(admission(source))
    await arrivals.come("running")
    source.refusals[TASK] = NoIdleWorker("none for this task")
    await arrivals.come("waiting", task=TASK)
    for name in ("second", "third"):
        await arrivals.come(name)
    await arrivals.leave("running")
    source.refusals.clear()
    await arrivals.leave("second")
    assert arrivals.granted == ["running", "second", "waiting"]


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
        session = Binding(Owner("a", "app", ""), "files")
        waiting = asyncio.create_task(queue.worker(place, session))
        await settled()
        running.release(LeaseOutcome.CLEAN)
        await waiting
    assert source.bindings == [REGISTERED, session, session], "at once, and when its turn has come"


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
            # The call runs up to its first wait, before anything else runs.
            async with asyncio.timeout(0):
                await queue.worker(place)
    await settled()
    assert arrivals.granted == ["running", "waiting"]


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


async def test_a_drain_refuses_an_exchange_whose_worker_is_still_starting(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    source = Source(pool)
    queue = admission(source)
    source.once_leased = queue.drain
    with pytest.raises(PoolUnavailableError):
        await acquire(queue, "a", None)
    assert pool.leases[0].outcome is LeaseOutcome.CLEAN
    assert pool.idle == 1


async def test_a_pool_that_fails_is_unavailable() -> None:
    class Broken(FakePool):
        async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
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


async def test_who_was_refused_is_tried_again_after_the_start_of_an_extra_worker_for_another(pool_of: PoolOf) -> None:
    """The start takes time, in which the pool may report a change that the queue does not look at."""
    pool = pool_of(2)
    source = Source(pool)
    arrivals = Arrivals(admission(source))
    other = TaskKey("app", 1, 2)
    await arrivals.come("first", task=TASK)
    await arrivals.come("second", task=other)
    source.refusals = dict.fromkeys((TASK, other), NoIdleWorker("the task holds enough"))
    await arrivals.come("sibling of first", task=TASK)
    await arrivals.come("sibling of second", task=other)
    del source.refusals[other]
    source.once_leased = source.refusals.clear
    pool.changed()
    await settled()
    await settled()
    assert arrivals.granted[2:] == ["sibling of second", "sibling of first"]


class WithoutExtraWorkers(FakePool):
    """Pool whose tasks already have all extra workers."""

    async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
        if not self.idle:
            raise NoIdleWorker("all workers are busy")
        return await super().lease(task, binding, leave_fresh=leave_fresh)


async def test_many_tasks_of_one_tenant_do_not_pass_another_for_long() -> None:
    pool = WithoutExtraWorkers(workers=2)
    queue = admission(pool)
    tasks = [TaskKey("app", 1, number) for number in range(2)]
    # A worker of one task is always busy.
    grants = [await acquire(queue, "a", task) for task in tasks]
    waiting = [asyncio.ensure_future(acquire(queue, "a", tasks[0])) for _ in range(4)]
    other = asyncio.ensure_future(acquire(queue, "b", TaskKey("another app", 1, 1)))
    await settled()
    passed = 0
    while not other.done():
        grants.pop().release(LeaseOutcome.CLEAN)
        waiting.append(asyncio.ensure_future(acquire(queue, "a", tasks[0])))
        await settled()
        granted = [arrival for arrival in waiting if arrival.done()]
        waiting = [arrival for arrival in waiting if not arrival.done()]
        grants += [arrival.result() for arrival in granted]
        passed += len(granted)
        assert passed < 20
    assert passed
    for arrival in waiting:
        arrival.cancel()
    await pool.close(0)
