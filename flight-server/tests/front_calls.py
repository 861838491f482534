# SPDX-License-Identifier: Apache-2.0
"""Calls that a client makes to a front, and a worker that waits until a test lets it go on."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.flight as flight
from fake_pool import FakeWorker
from flight_messages import (
    all_replies,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc

from updraft_server.ipc.frames import FrameKind

Answer = TypeVar("Answer")

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("that did not happen")


class Gate:
    """Worker that ends its exchange when the test opens the gate."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def script(self, worker: FakeWorker) -> None:
        await worker.receive()
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await self.opened.wait()
        while (await worker.receive()).kind is not FrameKind.END:
            pass
        await worker.send(FrameKind.DONE)


async def health(channel: grpc.aio.Channel, name: str = "") -> int:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
    return int(reply.status)


async def admitted(channel: grpc.aio.Channel, authorization: str = "") -> grpc.StatusCode:
    """Return the status of a call that every authenticated client may make."""
    method = channel.unary_stream("/arrow.flight.protocol.FlightService/ListActions")
    call = method(b"", metadata=(("authorization", authorization),) if authorization else (), timeout=60)
    return (await status_of(call)) or grpc.StatusCode.OK


async def status_of(call: Any) -> grpc.StatusCode | None:
    _, error = await all_replies(call)
    return error.code() if error is not None else None


def in_a_thread(function: Callable[..., Answer], *arguments: Any) -> asyncio.Future[Answer]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def pyarrow_echo(location: str, **options: Any) -> list[pa.RecordBatch]:
    batches = [pa.record_batch({"_0": pa.array([number, None], pa.int64())}) for number in range(20)]
    with flight.connect(location, **options) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("echo"))
        writer.begin(batches[0].schema)
        reading: list[pa.RecordBatch] = []
        thread = threading.Thread(target=lambda: reading.extend(chunk.data for chunk in reader))
        thread.start()
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        thread.join()
        writer.close()
    assert reading == batches
    return reading
