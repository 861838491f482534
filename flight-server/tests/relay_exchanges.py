# SPDX-License-Identifier: Apache-2.0
"""Relay alone, between a call that is a queue and a worker that is a script."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fake_pool import FakeLease, FakePool, FakeWorker, Script, echo
from flight_messages import FlightData, path_request

from updraft.errors import (
    UpdraftError,
)
from updraft.flight_data import split_flight_data
from updraft.service.audit import NO_RECORD
from updraft.service.identity import ANYBODY
from updraft.v1.exchange_pb2 import ExchangeCommand
from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.front.relay.relay import Relay, RelayLimits
from updraft_server.front.relay.segment import Segments
from updraft_server.front.relay.transfer import Transfer
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome

MAX_MESSAGE_BYTES = 10_000
ECHO_DESCRIPTOR = bytes(split_flight_data(path_request("echo")).descriptor)


def dictionary() -> bytes:
    """Return a dictionary as a plain Flight client sends it."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"x": pa.array(["a"]).dictionary_encode()})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    _, message, _ = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return bytes(
        FlightData(data_header=message.metadata.to_pybytes(), data_body=message.body.to_pybytes()).SerializeToString()
    )


class ScriptedCall:
    """Client that sends these messages and half-closes; without an end it then stays silent."""

    identity = ANYBODY
    record = NO_RECORD

    remaining_seconds = None

    def __init__(self, messages: Iterable[bytes], *, ends: bool = True) -> None:
        self.sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        for message in [*messages, *([None] if ends else [])]:
            self.sent.put_nowait(message)
        self.received: list[Any] = []
        self.reads = asyncio.Event()
        """Cleared, it holds back what is written."""
        self.reads.set()
        self.taken = self.given_up = 0
        self._wrote = asyncio.Event()

    async def read(self) -> bytes | None:
        return await self.sent.get()

    async def write(self, message: bytes) -> None:
        self.received.append(FlightData.FromString(message))
        self._wrote.set()
        try:
            await self.reads.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        self.taken += 1

    async def accept(self) -> None:
        raise NotImplementedError

    async def has_received(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.received) < count:
                self._wrote.clear()
                await self._wrote.wait()

    def header(self, name: str) -> str:
        return ""


class Exchange:
    """Relay and both its sides."""

    def __init__(
        self,
        call: ScriptedCall,
        lease: FakeLease,
        batch_timeout: BatchTimeout,
        *,
        plain: bool,
        batched: bool,
        session: bool,
        segments: Segments | None,
    ) -> None:
        self.call = call
        self.lease = lease
        self.transfer = Transfer()
        request: Any = SimpleNamespace(
            function="f",
            subject="the function f",
            plain=plain,
            is_batched=batched,
            is_session=session,
            payload=b"" if plain else b"payload",
            schema=b"schema",
            descriptor=ECHO_DESCRIPTOR,
            command=ExchangeCommand(takes_segment=segments is not None),
        )
        max_message_bytes = MAX_MESSAGE_BYTES if segments is None else 2**30
        limits = RelayLimits(max_message_bytes, batch_timeout, segments or Segments(None, "owner"))
        self.relay = Relay(call, lease, request, limits, self.transfer)

    async def run(self) -> LeaseOutcome:
        try:
            async with asyncio.timeout(60):
                return await self.relay.run(Assignment())
        finally:
            self.lease.release(LeaseOutcome.BROKEN)

    async def error(self) -> UpdraftError:
        with pytest.raises(UpdraftError) as raised:
            await self.run()
        return raised.value


async def exchange(
    messages: Iterable[bytes],
    script: Script = echo,
    *,
    ends: bool = True,
    plain: bool = False,
    batched: bool = False,
    session: bool = False,
    segments: Segments | None = None,
    batch_timeout: BatchTimeout = BatchTimeout(0.0, ""),  # noqa: B008 - it is frozen
) -> Exchange:
    lease = await FakePool(script=script).lease(None)
    assert isinstance(lease, FakeLease)
    return Exchange(
        ScriptedCall(messages, ends=ends),
        lease,
        batch_timeout,
        plain=plain,
        batched=batched,
        session=session,
        segments=segments,
    )


def data(size_bytes: int = 10) -> bytes:
    return bytes(FlightData(data_header=b"h", data_body=b"b" * size_bytes).SerializeToString())


async def consume(worker: FakeWorker) -> None:
    """Receive until the client's end."""
    while (await worker.receive()).kind is not FrameKind.END:
        pass


async def silent(worker: FakeWorker) -> None:
    """Receive everything and send nothing."""
    while True:
        await worker.receive()
