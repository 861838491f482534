# SPDX-License-Identifier: Apache-2.0
"""Scripted worker in a front whose looks the test makes itself, so that nothing waits."""

import asyncio
from typing import Any

from fake_pool import FakeWorker
from flight_messages import command_request, echo_command, reply_metadata
from front_harness import RunningFront

from updraft.v1.exchange_pb2 import ExchangeCommand, ReplyMetadata
from updraft_server.front.limits import running_exchanges
from updraft_server.ipc.frames import FrameKind

# The front's own looks are so rare that none happens within a test.
FAR_APART = {"client_silence_seconds": 4_000.0, "worker_silence_seconds": 4_000.0}
LOOKS_TO_A_LIMIT = round(4_000 / 30) + 1


class Script:
    """Worker that reports what it got, and continues when the test says so."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[FrameKind] = asyncio.Queue()
        self.replies: asyncio.Queue[ReplyMetadata] = asyncio.Queue()

    async def __call__(self, worker: FakeWorker) -> None:
        receiving = asyncio.ensure_future(self._receive(worker))
        try:
            while True:
                await worker.send(FrameKind.MESSAGE, (await self.replies.get()).SerializeToString())
        finally:
            receiving.cancel()

    async def _receive(self, worker: FakeWorker) -> None:
        while True:
            self.received.put_nowait((await worker.receive()).kind)

    async def got(self, kind: FrameKind) -> None:
        assert await asyncio.wait_for(self.received.get(), 60) is kind


async def opened(front: RunningFront, script: Script, command: ExchangeCommand | None = None) -> Any:
    call = front.exchange()
    await call.write(command_request(command or echo_command()))
    await script.got(FrameKind.COMMAND)
    assert reply_metadata(await call.read()).HasField("admitted")
    await written(front)
    return call


async def looked_at(front: RunningFront, times: int = 2 * LOOKS_TO_A_LIMIT) -> None:
    for _ in range(times):
        await front.front.running.look()


def clocks_looked_at(front: RunningFront, seconds: float) -> None:
    """Look at clocks as often as the front would in this many seconds."""
    for _ in range(round(seconds / running_exchanges._LIMITS_LOOK_SECONDS)):
        front.front.running.look_at_clocks()


async def written(front: RunningFront) -> None:
    """Wait until the front knows that gRPC has taken its last message; before that it would wait for the client."""
    for _ in range(60_000):
        if not any(watched.relay._writing for watched in front.front.running._watched):
            return
        await asyncio.sleep(0.001)
    raise AssertionError("gRPC has not taken the front's message")
