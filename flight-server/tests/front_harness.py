# SPDX-License-Identifier: Apache-2.0
"""Front over a FakePool or real workers, on ports that the system chooses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from updraft.service.lifecycle import Event, Phase
from updraft_server.front.process import Front, assemble
from updraft_server.pool.interface import WorkerPool
from updraft_server.settings import ServeSettings

DO_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"


class RunningFront:
    """Serving front, and a channel to it."""

    def __init__(
        self,
        front: Front,
        pool: Any,
        settings: ServeSettings,
        channel: "grpc.aio.Channel",
        running: asyncio.Task[None],
    ) -> None:
        self.front = front
        self.pool = pool
        self.settings = settings
        self.channel = channel
        self._running = running

    @property
    def address(self) -> str:
        return self.settings.listen

    def exchange(self, **options: Any) -> Any:
        """Start a raw DoExchange call: bytes out, bytes in."""
        return self.channel.stream_stream(DO_EXCHANGE)(**options)

    async def stopped(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._running), 60)


@asynccontextmanager
async def running_front_over(
    pool: WorkerPool, wait_until: asyncio.Event | None = None, *, artifacts_directory: Path, **changes: Any
) -> AsyncIterator[RunningFront]:
    values = {"listen": "127.0.0.1:0", "admin_listen": "", "metrics_listen": "", "workers": 1, **changes}
    settings = ServeSettings(**values).with_free_ports()
    front = assemble(settings, pool, artifacts_directory)
    ready = wait_until or asyncio.Event()
    front.lifecycle.subscribe(lambda phase: ready.set() if phase is Phase.READY else None)
    running = asyncio.create_task(front.run())
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
    async with grpc.aio.insecure_channel(settings.listen) as channel:
        yield RunningFront(front, pool, settings, channel, running)
        front.lifecycle.handle(Event.DRAIN_REQUESTED)
        await asyncio.wait_for(running, 60)


Running = Callable[..., AbstractAsyncContextManager[RunningFront]]
