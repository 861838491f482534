# SPDX-License-Identifier: Apache-2.0
"""Batches that arrive at a quota one after the other, with a clock that the test moves."""

import asyncio

from updraft.service.tenants import Caps
from updraft_writer.quota import Quota, QuotaLimits, Reservation


async def settled() -> None:
    """Let every runnable task of the loop run; nothing here waits for the outside."""
    for _ in range(10):
        await asyncio.sleep(0)


class Arrivals:
    """Requests to a quota, the order in which they were admitted, and the bytes they hold."""

    def __init__(
        self, quota_bytes: int = 100, timeout_seconds: float = 60.0, caps: Caps | None = None, own_bytes: int = 0
    ) -> None:
        self.now = 0.0
        self.quota = Quota(
            QuotaLimits(
                quota_bytes=quota_bytes, own_bytes=own_bytes, bypass_seconds=5.0, timeout_seconds=timeout_seconds
            ),
            caps=caps,
            clock=lambda: self.now,
        )
        self.admitted: list[str] = []
        self.held: dict[str, Reservation] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, wanted_bytes: int, tenant: str = "t") -> None:
        self.tasks[name] = asyncio.create_task(self._acquire(name, wanted_bytes, tenant))
        await settled()

    async def _acquire(self, name: str, wanted_bytes: int, tenant: str) -> None:
        self.held[name] = await self.quota.acquire(tenant, wanted_bytes)
        self.admitted.append(name)

    async def leave(self, name: str) -> None:
        self.held.pop(name).release()
        await settled()

    async def leave_in_turn(self) -> None:
        """Release all held bytes, the oldest first, until none are held."""
        while self.held:
            await self.leave(next(iter(self.held)))

    def is_empty(self) -> bool:
        return (self.quota.held_bytes, self.quota.reservations, self.quota.waiting) == (0, 0, 0)
