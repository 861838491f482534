# SPDX-License-Identifier: Apache-2.0
"""Pool, as admission uses it."""

from collections.abc import Callable
from typing import Any, Protocol

from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import Lease, TaskKey
from updraft_server.pool.resting import RestingWorkers


class WorkerSource(Protocol):
    """Source of workers for waiting exchanges; `updraft_server.pool.pool` implements it."""

    @property
    def idle(self) -> int:
        """Number of workers that could be leased now."""

    async def lease(self, task: TaskKey | None, binding: Binding, *, leave_fresh: int) -> Lease:
        """Return an idle worker, or an extra worker if the task holds one; raise NoIdleWorker or PoolError.

        The call leaves the last `leave_fresh` fresh workers unused.
        """

    async def lease_idle(self, binding: Binding) -> Lease:
        """Return an idle worker that serves no other owner; raise NoIdleWorker or PoolError."""

    async def lease_extra(self, task: TaskKey | None, binding: Binding) -> Lease:
        """Return a worker beyond the configured number; raise NoIdleWorker or PoolError."""

    @property
    def resting(self) -> RestingWorkers[Any]:
        """Workers between two exchanges."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change."""
