# SPDX-License-Identifier: Apache-2.0
"""Health of the pool and of each registered function, published as gRPC health."""

import asyncio
from collections.abc import Callable, Mapping

from updraft.service.flight_service import FLIGHT_SERVICE_NAME
from updraft.service.health import WHOLE_SERVICE, HealthBoard
from updraft.service.lifecycle import Lifecycle, Phase
from updraft_server.pool.interface import WorkerPool

_FUNCTION = "updraft.function/"


class PoolHealth:
    """Health that one front publishes, kept up to date with the pool, the lifecycle and the functions."""

    def __init__(self, pool: WorkerPool, lifecycle: Lifecycle, faults: Callable[[], Mapping[str, str]]) -> None:
        """Create the health, not yet published; `faults` returns each registered function's fault, empty if healthy."""
        self.board = HealthBoard()
        self._pool = pool
        self._lifecycle = lifecycle
        self._faults = faults
        self._changed = asyncio.Event()
        self._changed.set()
        pool.subscribe(self.change)
        lifecycle.subscribe(lambda _phase: self.change())

    def change(self) -> None:
        """Publish again soon, because something has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Publish after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.publish()

    async def publish(self) -> None:
        """Publish the current health."""
        serving = self._lifecycle.phase is Phase.READY and self._pool.idle + self._pool.busy > 0
        await self.board.publish([WHOLE_SERVICE, FLIGHT_SERVICE_NAME], serving=serving)
        functions = {f"{_FUNCTION}{name}": fault for name, fault in self._faults().items()}
        for name, fault in functions.items():
            await self.board.publish([name], serving=serving and not fault)
        # Withdraw functions that a reload has removed.
        known = [name for name in self.board.published if name.startswith(_FUNCTION)]
        await self.board.withdraw(name for name in known if name not in functions)
