# SPDX-License-Identifier: Apache-2.0
"""Which exchange gets a worker next: a bounded queue, fair between tenants.

Policy alone: it knows neither gRPC nor sockets. `updraft_server.pool` has the workers; `updraft_server.exchange` comes
here for one and brings it back. Nobody overtakes a waiting tenant, except an exchange of a task that already holds a
worker: its other exchange may be waiting for this one's results ("Several exchanges of one task" in proto/README.md).
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from updraft.errors import PoolFullError, PoolUnavailableError
from updraft_server.pool import Lease, LeaseOutcome, NoIdleWorker, PoolError, TaskKey


class WorkerSource(Protocol):
    """What admission needs of a pool."""

    @property
    def idle(self) -> int:
        """Workers that could be leased now."""

    async def lease(self, task: TaskKey | None, binding: str) -> Lease:
        """An idle worker, or an extra one for a task that holds one; raises NoIdleWorker, PoolError."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many may wait, and when a refused client is told to come again."""

    queue_limit: int
    queue_bytes: int
    retry_after_milliseconds: int


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
class _Waiter:
    tenant: str
    task: TaskKey | None
    binding: str
    held_bytes: int
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """The queue in front of a pool."""

    def __init__(self, pool: WorkerSource, limits: AdmissionLimits) -> None:
        self._pool = pool
        self._limits = limits
        self._queues: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._holding: Counter[TaskKey] = Counter()
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

    async def acquire(self, tenant: str, task: TaskKey | None, binding: str = "", held_bytes: int = 0) -> Grant:
        """A worker for an exchange, at once or after its turn in the queue; a cancelled caller leaves the queue.

        `binding` is what the worker will have loaded for good (`Pool.lease`); `held_bytes` is the memory that the
        exchange holds while it waits: its command and schema.
        Raises PoolFullError when the queue is full and PoolUnavailableError in a drain or when the pool fails.
        """
        if self._draining:
            raise _draining_error()
        may_overtake = task is not None and self._holding[task] > 0
        if may_overtake or not self._queues:
            try:
                return await self._lease(task, binding)
            except NoIdleWorker:
                pass
        return await self._wait(_Waiter(tenant, task, binding, held_bytes))

    def drain(self) -> None:
        """Refuse everybody who waits or comes: no work of theirs was done, another pool can take them."""
        self._draining = True
        self._unsubscribe()
        for waiter in [waiter for queue in self._queues.values() for waiter in queue]:
            self._fail(waiter, _draining_error())
        self._queues.clear()

    async def _lease(self, task: TaskKey | None, binding: str) -> Grant:
        # Counted before the wait for the worker, so that a sibling that comes meanwhile is known as one.
        self._count(task, +1)
        try:
            lease = await self._pool.lease(task, binding)
        except BaseException as error:
            self._count(task, -1)
            if isinstance(error, PoolError) and not isinstance(error, NoIdleWorker):
                raise PoolUnavailableError(f"the pool cannot give a worker: {error}") from error
            raise
        return Grant(lease, lambda: self._count(task, -1))

    def _count(self, task: TaskKey | None, change: int) -> None:
        if task is not None:
            self._holding[task] += change
            if self._holding[task] == 0:
                del self._holding[task]

    async def _wait(self, waiter: _Waiter) -> Grant:
        self._check_memory(waiter)
        self._make_room(waiter.tenant)
        self._queues.setdefault(waiter.tenant, deque()).append(waiter)
        self._workers_changed()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                waiter.granted.result().release(LeaseOutcome.CLEAN)
            raise
        finally:
            self._forget(waiter)

    def _check_memory(self, newcomer: _Waiter) -> None:
        """Refuse an exchange whose command would not fit beside those that wait; alone it always fits."""
        held_bytes = sum(waiter.held_bytes for queue in self._queues.values() for waiter in queue)
        if held_bytes and held_bytes + newcomer.held_bytes > self._limits.queue_bytes:
            raise self._refusal()

    def _refusal(self) -> PoolFullError:
        return PoolFullError(
            f"all workers are busy and {self.waiting} exchanges wait: come again later, or give the pool more workers",
            retry_after_milliseconds=self._limits.retry_after_milliseconds,
        )

    def _make_room(self, tenant: str) -> None:
        """Refuse one exchange of the tenant that fills a full queue most, which may be this one."""
        if self.waiting < self._limits.queue_limit:
            return
        refusal = self._refusal()
        largest = max(self._queues, key=lambda name: len(self._queues[name]), default=tenant)
        if len(self._queues.get(largest, ())) <= len(self._queues.get(tenant, ())) + 1:
            raise refusal
        newest = self._queues[largest][-1]
        self._fail(newest, refusal)
        self._forget(newest)

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        if not waiter.granted.done():
            waiter.granted.set_exception(error)

    def _forget(self, waiter: _Waiter) -> None:
        queue = self._queues.get(waiter.tenant)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.tenant]

    def _workers_changed(self) -> None:
        if self._queues and (self._dispatching is None or self._dispatching.done()):
            self._dispatching = asyncio.get_running_loop().create_task(self._dispatch())

    async def _dispatch(self) -> None:
        """Grant workers until there is none or nobody waits; one at a time, so that the order holds."""
        refused: set[tuple[TaskKey | None, str]] = set()
        while waiter := self._next(refused):
            try:
                grant = await self._lease(waiter.task, waiter.binding)
            except NoIdleWorker:
                refused.add((waiter.task, waiter.binding))
                continue
            except PoolUnavailableError as error:
                self._fail(waiter, error)
                self._forget(waiter)
                continue
            self._forget(waiter)
            if waiter.granted.done():
                grant.release(LeaseOutcome.CLEAN)
                continue
            waiter.granted.set_result(grant)
            self._rotate(waiter.tenant)

    def _next(self, refused: set[tuple[TaskKey | None, str]]) -> _Waiter | None:
        """Who is served next: first who overtakes, then the next tenant's first; nobody who is as one in `refused`."""
        waiting = [
            waiter
            for queue in self._queues.values()
            for waiter in queue
            if (waiter.task, waiter.binding) not in refused
        ]
        for waiter in waiting:
            if waiter.task is not None and self._holding[waiter.task] > 0:
                return waiter
        return waiting[0] if waiting and self._pool.idle > 0 else None

    def _rotate(self, tenant: str) -> None:
        if tenant in self._queues:
            self._queues.move_to_end(tenant)


def _draining_error() -> PoolUnavailableError:
    return PoolUnavailableError("the pool is draining and takes no new exchanges: use another one")
