# SPDX-License-Identifier: Apache-2.0
"""Exchanges that arrive at an admission queue one after the other, over the workers of a FakePool."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fake_pool import FakePool

from updraft.service.tenants import Caps
from updraft_server.front.queue.admission import Admission, AdmissionLimits
from updraft_server.front.queue.place import Grant
from updraft_server.front.queue.worker_source import WorkerSource
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, TaskKey

PoolOf = Callable[[int], FakePool]

TASK = TaskKey("app", 1, 1)


class Source:
    """Source of a FakePool's workers that can refuse a task; records bindings and how many leases ran at once."""

    def __init__(self, pool: FakePool) -> None:
        self.refusals: dict[TaskKey | None, Exception] = {}
        self.bindings: list[Binding] = []
        self.once_leased: Callable[[], None] = lambda: None
        self.most_at_once = 0
        self._at_once = 0
        self._pool = pool
        self.subscribe = pool.subscribe
        self.resting = pool.resting

    @property
    def idle(self) -> int:
        return self._pool.idle

    async def lease_idle(self, binding: Binding) -> Lease:
        return await self._pool.lease_idle(binding)

    async def lease_extra(self, task: TaskKey | None, binding: Binding) -> Lease:
        return await self._pool.lease_extra(task, binding)

    async def lease(self, task: TaskKey | None, binding: Binding, *, leave_fresh: int = 0) -> Lease:
        self._at_once += 1
        self.bindings.append(binding)
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            named = None if task is None else replace(task, tenant="")
            if named in self.refusals:
                raise self.refusals[named]
            lease = await self._pool.lease(task, binding)
            # Lets a test change the pool after its last notification.
            self.once_leased()
            return lease
        finally:
            self._at_once -= 1


def admission(
    pool: WorkerSource, queue_limit: int = 100, caps: Caps | None = None, tenants_with_workers: int = 0
) -> Admission:
    limits = AdmissionLimits(queue_limit, 100, 500, tenants_with_workers)
    return Admission(pool, limits, caps)


async def acquire(
    queue: Admission, tenant: str, task: TaskKey | None, held_bytes: int = 0, binding: Binding = REGISTERED
) -> Grant:
    with queue.place(tenant, task, held_bytes) as place:
        return await queue.worker(place, binding)


class Arrivals:
    """Exchanges that arrive one after the other, and the order in which they were granted a worker."""

    def __init__(self, queue: Admission) -> None:
        self.granted: list[str] = []
        self.grants: dict[str, Grant] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._queue = queue

    async def come(
        self, name: str, tenant: str = "", task: TaskKey | None = None, binding: Binding = REGISTERED
    ) -> None:
        """Let an exchange arrive, by default with a tenant of its own; exchanges of tasks share one tenant."""
        tenant = tenant or ("tasks" if task is not None else name)
        self.tasks[name] = asyncio.create_task(self._acquire(name, tenant, task, binding))
        await settled()

    async def _acquire(self, name: str, tenant: str, task: TaskKey | None, binding: Binding) -> None:
        self.grants[name] = await acquire(self._queue, tenant, task, binding=binding)
        self.granted.append(name)

    async def leave(self, name: str) -> None:
        self.grants.pop(name).release(LeaseOutcome.CLEAN)
        await settled()

    async def serve_all(self) -> None:
        while self.grants:
            await self.leave(next(iter(self.grants)))


async def settled() -> None:
    """Let every runnable task of the loop run; nothing here waits for the outside."""
    for _ in range(10):
        await asyncio.sleep(0)
