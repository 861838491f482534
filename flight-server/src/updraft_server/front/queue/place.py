# SPDX-License-Identifier: Apache-2.0
"""Place of an exchange in the queue, and the worker that the queue grants to the exchange."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, TaskKey

Result = TypeVar("Result")


class Grant:
    """Worker granted to one exchange, which releases the worker once."""

    def __init__(self, lease: Lease, on_release: Callable[[], None]) -> None:
        self.lease = lease
        self._on_release: Callable[[], None] | None = on_release

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back; later calls do nothing."""
        if self._on_release is None:
            return
        on_release, self._on_release = self._on_release, None
        on_release()
        self.lease.release(outcome)


@dataclass(eq=False, slots=True)
class Place:
    """Place in the queue. An exchange holds it from before its client sends large messages until it has a worker."""

    tenant: str
    task: TaskKey | None
    held_bytes: int
    is_helper: bool = False
    """Whether the exchange only helps another one of its task, so that it takes no worker from other owners."""
    binding: Binding | None = None
    """Binding of the worker that the exchange needs; None until the exchange is ready for a worker."""
    ready_seconds: float = 0.0
    """Time at which the exchange became ready for a worker."""
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def unless_lost(self, work: Awaitable[Result]) -> Result:
        """Await work that precedes `Admission.worker` and return its result; cancel the work if the place is lost.

        Raises what the work raises, and PoolFullError or PoolUnavailableError if the place is lost.
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
            # Retrieve the exception, so that asyncio does not log it if nothing has awaited the task.
            if not task.cancelled():
                task.exception()
