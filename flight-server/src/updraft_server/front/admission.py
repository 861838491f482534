# SPDX-License-Identifier: Apache-2.0
"""Which exchange gets a worker next: a bounded queue, fair between tenants.

Policy alone: it knows neither gRPC nor sockets. `updraft_server.pool.pool` has the workers;
`updraft_server.front.exchange` takes a place in the queue before it lets its client send anything large, then waits
there for a worker, and brings it back.

A worker that comes back goes to the tenant with the fewest at work, of one tenant to the owner with the fewest. Equals
take turns, of a moment each rather than of an exchange: a worker serves one owner, so each change of turns ends one.
Nobody overtakes them, except an exchange of a task that already holds a worker: its other exchange may be waiting for
this one's results ("Several exchanges of one task" in proto/README.md).
"""

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from updraft.errors import PoolFullError, PoolUnavailableError
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, Owner, PoolError, TaskKey

# As many places a task that holds a worker has beyond the limits of the queue: its exchanges may wait for each other.
_MOST_SIBLINGS = 8
# Long beside the start of a worker and the imports of its functions, short for who waits.
_TURN_SECONDS = 0.5

Result = TypeVar("Result")
Key = TypeVar("Key")


class WorkerSource(Protocol):
    """What admission needs of a pool."""

    @property
    def idle(self) -> int:
        """Workers that could be leased now."""

    async def lease(self, task: TaskKey | None, binding: Binding) -> Lease:
        """An idle worker, or an extra one for a task that holds one; raises NoIdleWorker, PoolError."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many may wait, and when a refused client is told to come again."""

    queue_limit: int
    queue_bytes: int
    retry_after_milliseconds: int


class _Turn(NamedTuple):
    """Exchanges of one owner, one behind the other."""

    owner: Owner | None
    began_seconds: float


class Grant:
    """A worker granted to one exchange; released once."""

    def __init__(self, lease: Lease, on_release: Callable[[], None]) -> None:
        self.lease = lease
        self._on_release: Callable[[], None] | None = on_release

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back; only the first call counts."""
        if self._on_release is None:
            return
        on_release, self._on_release = self._on_release, None
        on_release()
        self.lease.release(outcome)


@dataclass(eq=False, slots=True)
class Place:
    """An exchange's place in the queue, from before its client sends anything large until it has a worker."""

    tenant: str
    task: TaskKey | None
    held_bytes: int
    binding: Binding | None = None
    """What it will make of its worker; None while the exchange is not ready for one."""
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def unless_lost(self, work: Awaitable[Result]) -> Result:
        """The result of what is done before `Admission.worker`; the work is cancelled once the place is lost.

        Raises what the work raises, and PoolFullError or PoolUnavailableError when the place is lost.
        """
        task = asyncio.ensure_future(work)
        try:
            awaited: set[asyncio.Future[Any]] = {task, self.granted}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.granted.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            # How it failed is known to whoever awaited it, and otherwise of no interest.
            if not task.cancelled():
                task.exception()


class Admission:
    """The queue in front of a pool."""

    def __init__(self, pool: WorkerSource, limits: AdmissionLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._queues: OrderedDict[str, deque[Place]] = OrderedDict()
        self._holding: Counter[TaskKey] = Counter()
        self._at_work: Counter[str] = Counter()
        """Workers of each tenant."""
        self._at_work_for_owners: Counter[Owner | None] = Counter()
        self._last_turn = _Turn(None, -math.inf)
        """Of the exchange that gave its worker back last."""
        self._draining = False
        self._dispatching: asyncio.Task[None] | None = None
        self._unsubscribe = pool.subscribe(self._workers_changed)

    @property
    def waiting(self) -> int:
        """Exchanges in the queue."""
        return sum(map(len, self._queues.values()))

    @property
    def queue_limit(self) -> int:
        """Exchanges that may be in the queue."""
        return self._limits.queue_limit

    @contextmanager
    def place(self, tenant: str, task: TaskKey | None, held_bytes: int = 0) -> Iterator[Place]:
        """A place for one exchange, given up at the end of the block.

        `held_bytes` is the memory that the exchange takes until it has a worker: its command and schema.
        Raises PoolFullError when the queue is full and PoolUnavailableError in a drain.
        """
        if self._draining:
            raise _draining_error()
        place = Place(tenant, task, held_bytes)
        siblings = sum(other.task == task for other in self._places())
        if not self._may_overtake(place) or siblings >= _MOST_SIBLINGS:
            self._make_memory(place)
            self._make_room(tenant)
        self._queues.setdefault(tenant, deque()).append(place)
        try:
            yield place
        finally:
            self._forget(place)

    async def worker(self, place: Place, binding: Binding = REGISTERED) -> Grant:
        """A worker for a place, at once or when its turn comes; a cancelled caller gives back what it was granted.

        Raises PoolFullError when another tenant needed the place more, and PoolUnavailableError in a drain or when the
        pool fails.
        """
        if not place.granted.done() and (self._may_overtake(place) or not self._has_waiters()):
            try:
                return await self._lease(place, binding)
            except NoIdleWorker:
                pass
        # Only now: from here on the dispatcher may grant it a worker.
        place.binding = binding
        self._workers_changed()
        try:
            return await place.granted
        except asyncio.CancelledError:
            if place.granted.done() and not place.granted.cancelled() and place.granted.exception() is None:
                place.granted.result().release(LeaseOutcome.CLEAN)
            raise

    def drain(self) -> None:
        """Refuse everybody who waits or comes: no work of theirs was done, another pool can take them."""
        self._draining = True
        self._unsubscribe()
        for place in self._places():
            self._fail(place, _draining_error())
        self._queues.clear()

    async def _lease(self, place: Place, binding: Binding) -> Grant:
        # Counted before the wait for the worker, so that a sibling that comes meanwhile is known as one.
        self._count(place, binding, +1)
        try:
            lease = await self._pool.lease(place.task, binding)
        except BaseException as error:
            self._count(place, binding, -1)
            if isinstance(error, PoolError) and not isinstance(error, NoIdleWorker):
                raise PoolUnavailableError(f"the pool cannot give a worker: {error}") from error
            raise
        turn = self._last_turn if self._goes_on(binding.owner) else _Turn(binding.owner, self._now())
        return Grant(lease, lambda: self._released(place, binding, turn))

    def _released(self, place: Place, binding: Binding, turn: _Turn) -> None:
        self._count(place, binding, -1)
        self._last_turn = turn

    def _goes_on(self, owner: Owner | None) -> bool:
        """Whether the owner's turn is not over, if it is the one whose worker came back."""
        return self._last_turn.owner == owner and self._now() - self._last_turn.began_seconds < _TURN_SECONDS

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _count(self, place: Place, binding: Binding, change: int) -> None:
        _add(self._at_work, place.tenant, change)
        _add(self._at_work_for_owners, binding.owner, change)
        if place.task is not None:
            _add(self._holding, place.task, change)

    def _places(self) -> list[Place]:
        return [place for queue in self._queues.values() for place in queue]

    def _may_overtake(self, place: Place) -> bool:
        return place.task is not None and self._holding[place.task] > 0

    def _has_waiters(self) -> bool:
        """Whether anybody is ready for a worker and has none."""
        return any(place.binding is not None for place in self._places())

    def _make_memory(self, newcomer: Place) -> None:
        """Refuse exchanges of the tenants that hold most memory until the newcomer fits; it may be refused itself.

        Alone it always fits.
        """
        held = Counter[str]()
        for place in self._places():
            held[place.tenant] += place.held_bytes
        # Who overtakes may be waited for by an exchange that has a worker.
        left = [place for place in self._places() if not self._may_overtake(place)]
        losers: list[Place] = []
        while (total_bytes := held.total()) and total_bytes + newcomer.held_bytes > self._limits.queue_bytes:
            [(largest, most_bytes)] = held.most_common(1)
            candidates = [place for place in left if place.tenant == largest]
            if not candidates or most_bytes <= held[newcomer.tenant] + newcomer.held_bytes:
                raise self._refusal()
            loser = max(candidates, key=lambda place: place.held_bytes)
            left.remove(loser)
            losers.append(loser)
            held[largest] -= loser.held_bytes
        for loser in losers:
            self._fail(loser, self._refusal())
            self._forget(loser)

    def _refusal(self) -> PoolFullError:
        return PoolFullError(
            f"all workers are busy and {self.waiting} exchanges wait: retry later, or give the pool more workers",
            retry_after_milliseconds=self._limits.retry_after_milliseconds,
        )

    def _make_room(self, tenant: str) -> None:
        """Refuse one exchange of the tenant that fills a full queue most, which may be this one."""
        if self.waiting < self._limits.queue_limit + self._pool.idle:
            return
        refusal = self._refusal()
        largest = max(self._queues, key=lambda name: len(self._queues[name]), default=tenant)
        if len(self._queues.get(largest, ())) <= len(self._queues.get(tenant, ())) + 1:
            raise refusal
        newest = self._queues[largest][-1]
        self._fail(newest, refusal)
        self._forget(newest)

    def _fail(self, place: Place, error: Exception) -> None:
        if not place.granted.done():
            place.granted.set_exception(error)
            # An exchange that is not ready for a worker may leave without asking for one.
            place.granted.exception()

    def _forget(self, place: Place) -> None:
        queue = self._queues.get(place.tenant)
        if queue is None or place not in queue:
            return
        queue.remove(place)
        if not queue:
            del self._queues[place.tenant]

    def _workers_changed(self) -> None:
        if self._queues and (self._dispatching is None or self._dispatching.done()):
            self._dispatching = asyncio.get_running_loop().create_task(self._dispatch())

    async def _dispatch(self) -> None:
        """Grant workers until there is none or nobody waits; one at a time, so that the order holds."""
        refused: set[tuple[TaskKey | None, Binding | None]] = set()
        while place := self._next(refused):
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
            # An extra worker takes time to start, in which a worker may have come back for who was refused.
            refused.clear()
            self._forget(place)
            if place.granted.done():
                grant.release(LeaseOutcome.CLEAN)
                continue
            place.granted.set_result(grant)
            if place.tenant in self._queues:
                self._queues.move_to_end(place.tenant)

    def _next(self, refused: set[tuple[TaskKey | None, Binding | None]]) -> Place | None:
        """Who is served next: first who overtakes, then who has fewest workers; nobody who is as one in `refused`."""
        ready = [
            place
            for place in self._places()
            if place.binding is not None and not place.granted.done() and (place.task, place.binding) not in refused
        ]
        for place in ready:
            if self._may_overtake(place):
                return place
        if not ready or self._pool.idle == 0:
            return None
        # Of equals the first: tenants stand in the order of their turns, and the places of each as they came.
        return min(ready, key=self._rank)

    def _rank(self, place: Place) -> tuple[int, int, bool]:
        owner = place.binding.owner if place.binding else None
        return self._at_work[place.tenant], self._at_work_for_owners[owner], not self._goes_on(owner)


def _add(counter: Counter[Key], key: Key, change: int) -> None:
    """Count, and keep no zeros: the names are without number."""
    counter[key] += change
    if counter[key] == 0:
        del counter[key]


def _draining_error() -> PoolUnavailableError:
    return PoolUnavailableError("the pool is draining and takes no new exchanges: use another one")
