# SPDX-License-Identifier: Apache-2.0
"""Admission of exchanges to workers: a bounded queue that is fair between tenants.

This is policy only, without gRPC or sockets; `updraft_server.pool.pool` holds the workers. For each exchange,
`updraft_server.front.exchange` reserves a place in the queue before the client may send large messages, waits there for
a worker, and gives the worker back at the end.

`updraft_server.front.queue.turns` decides which exchange is next. Only an exchange of a task that already holds a
worker may overtake (`updraft_server.front.queue.overtaking`).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

from updraft.errors import LimitError, PoolBusyError, PoolFullError, PoolUnavailableError
from updraft.service.metrics import Metrics
from updraft.service.tenants import Caps
from updraft_server.front.queue.overtaking import Overtaking
from updraft_server.front.queue.place import Grant, Place
from updraft_server.front.queue.turns import Turn, Turns
from updraft_server.front.queue.waiting_places import WaitingPlaces
from updraft_server.front.queue.worker_source import WorkerSource
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, PoolError, TaskKey

# Most exchanges of one task that may wait beyond the queue's limits while the task holds a worker. The queue admits
# these exchanges because exchanges of one task may be waiting for each other.
_MOST_SIBLINGS = 8
# Most exchanges that one dispatch skips because the pool has no worker for them. Skipped exchanges do not hold up other
# exchanges. The next dispatch, after a change of the pool's workers, tries the skipped exchanges again.
_MOST_REFUSED = 32
# A waiting tenant without a worker receives an extra worker after this time. If workers become free more often, tenants
# receive workers in turn and need no extra workers.
_STARVED_SECONDS = 10.0

QUEUE_BYTES = 512 * 1024 * 1024
"""Memory for the commands of all waiting exchanges together. Messages that arrive before their exchange has a worker
may take the same amount again. Each amount is a quarter of the memory that the chart gives the front. Most commands
have a few KiB, so --queue-limit is reached first; commands of several MiB reach this limit first. A refused client
tries again until its own timeout."""

RETRY_AFTER_MILLISECONDS = 500
"""Retry hint for refused clients. One of several workers comes free in about this time, and the hint is long enough
that retries of a thousand waiting tasks cost the front little."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of the queue, and when a refused client should retry."""

    queue_limit: int
    queue_bytes: int
    retry_after_milliseconds: int
    tenants_with_workers: int = 0
    """Number of tenants that get a worker each, if necessary an extra one. It should be 0 if clients state their own
    tenants, because a client could then state many."""


class Admission:
    """Queue in front of a pool."""

    def __init__(self, pool: WorkerSource, limits: AdmissionLimits, caps: Caps | None = None) -> None:
        self._pool = pool
        self._limits = limits
        self.queue_limit = limits.queue_limit
        """Maximum number of exchanges in the queue."""
        self._caps = caps or Caps()
        self._places = WaitingPlaces()
        self._turns: Turns[Place] = Turns(
            idle=lambda: pool.idle,
            most_workers=lambda tenant: self._caps.of(tenant).max_workers,
            now=lambda: self._now(),
        )
        """Places that are ready for a worker."""
        self.giving_way = self._turns.giving_way
        self._overtaking = Overtaking()
        self._draining = False
        self._dispatching: asyncio.Task[None] | None = None
        self._unsubscribe = pool.subscribe(self._workers_changed)

    @property
    def waiting(self) -> int:
        """Number of exchanges in the queue."""
        return self._places.count

    @property
    def queue_bytes(self) -> int:
        """Memory of the exchanges in the queue."""
        return self._places.held_bytes

    def show_in(self, metrics: Metrics) -> None:
        """Add gauges of the queue."""
        metrics.watch("updraft_exchanges_waiting", "Exchanges in the queue.", lambda: self.waiting)
        metrics.watch("updraft_queue_bytes", "Memory of the exchanges in the queue.", lambda: self.queue_bytes)

    @contextmanager
    def place(
        self, tenant: str, task: TaskKey | None, held_bytes: int = 0, *, is_helper: bool = False
    ) -> Iterator[Place]:
        """Yield a place for one exchange, and give it up at the end of the block.

        `held_bytes` is the memory that the exchange uses until it has a worker: its command and schema.
        Raises PoolFullError if the queue is full, LimitError if the exchange alone exceeds its tenant's cap, and
        PoolUnavailableError during a drain.
        """
        if self._draining:
            raise _draining_error()
        place = Place(tenant, None if task is None else replace(task, tenant=tenant), held_bytes, is_helper=is_helper)
        if not self._may_overtake(place) or self._places.count_of(place.task) >= _MOST_SIBLINGS:
            self._check_caps(place)
            self._make_memory(place)
            self._make_room(tenant)
        self._places.add(place)
        try:
            yield place
        finally:
            self._forget(place)

    def check_free(self, tenant: str, task: TaskKey | None) -> None:
        """Raise PoolBusyError if a new exchange would have to wait for other exchanges.

        Raises PoolUnavailableError during a drain. If the exchange would have to wait only for the start of a worker,
        raise nothing, because the next pod would have to start a worker too.
        """
        if self._draining:
            raise _draining_error()
        newcomer = Place(tenant, None if task is None else replace(task, tenant=tenant), 0)
        if not self._is_next(newcomer) or not (self._pool.idle or self._may_overtake(newcomer)):
            raise PoolBusyError("no worker is free, and the client asked not to wait for one")

    async def worker(self, place: Place, binding: Binding = REGISTERED, *, may_wait: bool = True) -> Grant:
        """Return a worker for a place, at once or when its turn comes. If cancelled, give back a granted worker.

        Raises PoolBusyError if the place would have to wait for other exchanges but may not, PoolFullError if the queue
        gave the place to another tenant, and PoolUnavailableError during a drain or if the pool fails.
        """
        if not may_wait:
            # Other exchanges may have taken the worker that was free when this exchange began.
            self.check_free(place.tenant, place.task)
        if not place.granted.done() and self._is_next(place):
            try:
                grant = await self._lease(place, binding)
            except NoIdleWorker as error:
                if place.is_helper:
                    raise PoolBusyError(str(error)) from None
            else:
                return self._unless_lost(place, grant)
        # From here on, the dispatcher may grant the place a worker.
        self._is_ready(place, binding)
        self._workers_changed()
        # After this time the place may receive an extra worker, so dispatch then, even if no worker has changed.
        starved = asyncio.get_running_loop().call_later(_STARVED_SECONDS, self._workers_changed)
        try:
            return await place.granted
        except asyncio.CancelledError:
            if place.granted.done() and not place.granted.cancelled() and place.granted.exception() is None:
                place.granted.result().release(LeaseOutcome.CLEAN)
            raise
        finally:
            starved.cancel()

    @staticmethod
    def _unless_lost(place: Place, grant: Grant) -> Grant:
        """Return the grant; if the place was lost while its worker started, give the worker back and raise why."""
        if place.granted.done():
            grant.release(LeaseOutcome.CLEAN)
            place.granted.result()
        return grant

    def drain(self) -> None:
        """Refuse waiting and new exchanges: none of their work has begun, so another pool can run them."""
        self._draining = True
        self._unsubscribe()
        for place in list(self._places):
            self._fail(place, _draining_error())
            self._forget(place)

    async def _lease(self, place: Place, binding: Binding) -> Grant:
        overtakes, waits = self._may_overtake(place), place.binding is not None
        passes = overtakes and self._is_passed_over()
        # Count the task's worker before waiting for it, so that another exchange of the task may overtake meanwhile.
        self._overtaking.hold(place.task, +1)
        # Several newcomers may request workers at the same time, so count a newcomer's worker at once. Waiters are
        # served one at a time and keep their turn if no worker is free, so count a waiter's worker after the lease.
        self._turns.count(place.tenant, binding.owner, 0 if waits else +1)
        try:
            # A new owner needs a fresh worker, and starting a worker takes time. So a tenant that has used a turn
            # leaves one fresh worker ready for tenants that have used little time.
            leave_fresh = int(self._turns.has_used_a_turn(place.tenant))
            if place.is_helper:
                lease = await self._pool.lease_idle(binding)
            elif self._is_starved(place):
                lease = await self._pool.lease_extra(place.task, binding)
            else:
                lease = await self._pool.lease(place.task, binding, leave_fresh=leave_fresh)
        except BaseException as error:
            self._overtaking.hold(place.task, -1)
            self._turns.count(place.tenant, binding.owner, 0 if waits else -1)
            if isinstance(error, PoolError) and not isinstance(error, NoIdleWorker):
                raise PoolUnavailableError(f"the pool cannot give a worker: {error}") from error
            raise
        if overtakes:
            self._overtaking.overtook(place.task, passes=passes)
        else:
            self._overtaking.served_in_turn()
        self._turns.count(place.tenant, binding.owner, +1 if waits else 0)
        if binding.owner is not None:
            self._count_for_cap(place.tenant, lease)
        turn = self._turns.begun(place.tenant, binding.owner)
        return Grant(lease, lambda: self._released(place, turn))

    def _count_for_cap(self, tenant: str, lease: Lease) -> None:
        """Keep a tenant from computing in more workers than its cap allows, during exchanges or between them."""
        lease.count_for(tenant)
        most = self._caps.of(tenant).max_workers
        if most is not None:
            self._pool.resting.stop_all_but(most - self._turns.at_work(tenant), tenant)

    def _released(self, place: Place, turn: Turn) -> None:
        self._overtaking.hold(place.task, -1)
        self._turns.ended(turn)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _may_overtake(self, place: Place) -> bool:
        return self._overtaking.may_overtake(place.task)

    def _is_starved(self, place: Place) -> bool:
        """Return whether a place receives an extra worker, because its tenant has waited for long and has no worker."""
        return (
            place.binding is not None
            and not self._pool.idle
            and self._turns.tenants_at_work < self._limits.tenants_with_workers
            and not self._turns.at_work(place.tenant)
            and self._now() - place.ready_seconds >= _STARVED_SECONDS
        )

    def _is_passed_over(self) -> bool:
        """Return whether an overtaking exchange would take a worker from an exchange whose turn it is."""
        return self._pool.idle > 0 and bool(self._turns)

    def _is_next(self, place: Place) -> bool:
        """Return whether a newcomer may have a worker at once, because no waiting exchange has a claim to it."""
        if self._may_overtake(place):
            return not self._is_passed_over() or self._overtaking.may_pass
        is_capped = self._caps.exceeded("max_workers", place.tenant, self._turns.at_work(place.tenant), 1)
        return not is_capped and not self._turns and not any(True for _ in self._overtakers())

    def _check_caps(self, newcomer: Place) -> None:
        """Raise PoolFullError or LimitError if the newcomer exceeds what its tenant may have in the queue."""
        tenant, caps, more_bytes = newcomer.tenant, self._caps, newcomer.held_bytes
        queue = self._places.of(tenant)
        # As in `_make_room`, exchanges for which a worker is idle do not count as waiting.
        waiting = max(0, len(queue.places) - self._pool.idle)
        if caps.exceeded("max_waiting", tenant, waiting, 1):
            raise self._full(caps.refusal("max_waiting", tenant, waiting, 1))
        if caps.exceeded("max_queue_bytes", tenant, queue.held_bytes, more_bytes):
            reason = caps.refusal("max_queue_bytes", tenant, queue.held_bytes, more_bytes)
            raise self._full(reason) if queue.held_bytes else LimitError(reason)

    def _make_memory(self, newcomer: Place) -> None:
        """Refuse exchanges of the tenants that hold most memory until the newcomer fits, or refuse the newcomer.

        Any newcomer fits in an empty queue.
        """
        missing_bytes = self.queue_bytes + newcomer.held_bytes - self._limits.queue_bytes
        if missing_bytes <= 0 or not self.queue_bytes:
            return
        held = {tenant: queue.held_bytes for tenant, queue in self._places.tenants.items()}
        left: dict[str, list[Place]] = {}
        losers: list[Place] = []
        while missing_bytes > 0 and len(losers) < self.waiting:
            largest = max(held, key=lambda tenant: held[tenant])
            if largest not in left:
                # Keep exchanges that may overtake: an exchange that has a worker may be waiting for them.
                left[largest] = [place for place in self._places.of(largest).places if not self._may_overtake(place)]
            if not left[largest] or held[largest] <= held.get(newcomer.tenant, 0) + newcomer.held_bytes:
                raise self._refusal()
            loser = max(left[largest], key=lambda place: place.held_bytes)
            left[largest].remove(loser)
            losers.append(loser)
            held[largest] -= loser.held_bytes
            missing_bytes -= loser.held_bytes
        for loser in losers:
            self._fail(loser, self._refusal())
            self._forget(loser)

    def _refusal(self) -> PoolFullError:
        return self._full(
            f"all workers are busy and {self.waiting} exchanges wait: retry later, or give the pool more workers"
        )

    def _full(self, reason: str) -> PoolFullError:
        return PoolFullError(reason, retry_after_milliseconds=self._limits.retry_after_milliseconds)

    def _make_room(self, tenant: str) -> None:
        """If the queue is full, refuse an exchange of the tenant that has most places, possibly `tenant` itself."""
        if self.waiting < self.queue_limit + self._pool.idle:
            return
        refusal = self._refusal()
        own, tenants = len(self._places.of(tenant).places), self._places.tenants
        largest = max(tenants, key=lambda name: len(tenants[name].places), default=tenant)
        if largest == tenant or len(tenants[largest].places) <= own + 1:
            # The tenants have about equally many places. A tenant that has no place and has used little worker time
            # then receives a place from a tenant that has used much.
            other = self._turns.last_that_has_used_a_turn()
            if own or other is None or self._turns.has_used_a_turn(tenant):
                raise refusal
            largest = other
        newest = next(reversed(tenants[largest].places))
        self._fail(newest, refusal)
        self._forget(newest)

    def _fail(self, place: Place, error: Exception) -> None:
        if not place.granted.done():
            place.granted.set_exception(error)
            # Retrieve the exception, so that asyncio does not log it if the exchange never awaits its worker.
            place.granted.exception()

    def _is_ready(self, place: Place, binding: Binding) -> None:
        if place in self._places:
            place.binding, place.ready_seconds = binding, self._now()
            self._turns.add(place.tenant, binding.owner, place)
            self._places.is_ready(place)

    def _forget(self, place: Place) -> None:
        if place in self._places:
            self._places.remove(place)
            if place.binding is not None:
                self._turns.discard(place.tenant, place.binding.owner, place)

    def _workers_changed(self) -> None:
        if self._places and (self._dispatching is None or self._dispatching.done()):
            self._dispatching = asyncio.get_running_loop().create_task(self._dispatch())

    async def _dispatch(self) -> None:
        """Grant workers, one at a time to keep the order, until no worker is left or no exchange waits."""
        refused: set[tuple[TaskKey | None, Binding | None]] = set()
        while len(refused) < _MOST_REFUSED and (place := self._next(refused)):
            try:
                grant = await self._lease(place, place.binding or REGISTERED)
            except NoIdleWorker:
                refused.add((place.task, place.binding))
                continue
            except PoolUnavailableError as error:
                refused.clear()
                self._fail(place, error)
                self._forget(place)
                continue
            # Try the skipped exchanges again: this lease may have waited for a worker to start, and another worker may
            # have become free meanwhile.
            refused.clear()
            self._forget(place)
            if place.granted.done():
                grant.release(LeaseOutcome.CLEAN)
                continue
            place.granted.set_result(grant)

    def _next(self, refused: set[tuple[TaskKey | None, Binding | None]]) -> Place | None:
        """Return the place to serve next: overtakers first, then by turns; None if no place can be served.

        After too many overtakings in a row, turns come first. A place whose task and binding are in `refused` is
        skipped.
        """
        # Extra workers may be few, so tenants with the fewest workers come first here too.
        overtakers = sorted(self._overtakers(), key=lambda place: self._turns.at_work(place.tenant))
        candidates = self._turns.candidates() if self._pool.idle else self._starved()
        places = chain(overtakers, candidates) if self._overtaking.may_pass else chain(candidates, overtakers)
        return next((place for place in places if (place.task, place.binding) not in refused), None)

    def _starved(self) -> Iterator[Place]:
        if self._turns.tenants_at_work < self._limits.tenants_with_workers:
            yield from (place for place in self._turns.candidates() if self._is_starved(place))

    def _overtakers(self) -> Iterator[Place]:
        """Yield the places that are ready and whose task already holds a worker."""
        # Iterate over the tasks that hold workers, because they are fewer than the tasks that may be waiting.
        for task in self._overtaking.tasks:
            yield from (place for place in self._places.ready_of(task) if self._may_overtake(place))


def _draining_error() -> PoolUnavailableError:
    return PoolUnavailableError("the pool is draining and takes no new exchanges: use another one")
