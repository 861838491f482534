# SPDX-License-Identifier: Apache-2.0
"""Payloads that only the worker reads: a defect is its client's error, and the pool continues to serve."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from flight_messages import SCHEMA, FlightData, all_replies, finish, reply_metadata
from front_harness import DO_EXCHANGE
from pool_driver import split
from pyspark.sql.types import LongType
from served_pool import Server
from session_commands import SCALAR_PANDAS, session_command, udf

from updraft.v1.exchange_pb2 import (
    DeferredPayload,
    Error,
    ErrorKind,
    ExchangeCommand,
    PayloadPart,
    RequestMetadata,
    SessionPayload,
)

MAX_MESSAGE_BYTES = 1024 * 1024
PART_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        options = ("--workers=1", "--session-functions=unsigned", f"--max-message-bytes={MAX_MESSAGE_BYTES}")
        running = Server(Path(directory), *options)
        yield running
        running.stop()


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.ready()["listen"]) as connected:
        yield connected


def command(**changes: Any) -> ExchangeCommand:
    made = session_command(SCALAR_PANDAS, udf(lambda x: x, LongType()))
    for field, value in changes.items():
        made.ClearField(field)
        made.MergeFrom(ExchangeCommand(**{field: value}))
    return made


def first_message(asked: ExchangeCommand) -> bytes:
    descriptor = {"type": 2, "cmd": asked.SerializeToString()}
    return bytes(
        FlightData(flight_descriptor=descriptor, data_header=bytes(split(SCHEMA.serialize())[0])).SerializeToString()
    )


def payload_part(data: bytes, offset: int) -> bytes:
    metadata = RequestMetadata(payload=PayloadPart(offset=offset)).SerializeToString()
    return bytes(FlightData(app_metadata=metadata, data_body=data).SerializeToString())


async def error_of(channel: grpc.aio.Channel, *messages: bytes) -> Error:
    call = channel.stream_stream(DO_EXCHANGE)(timeout=60)
    for message in messages:
        await call.write(message)
    await call.done_writing()
    replies, error = await all_replies(call)
    assert error is not None
    return reply_metadata(replies[-1]).error


WITHOUT_UDF = SessionPayload(runner_conf={"a": "b"}).SerializeToString()
WITHOUT_FUNCTION = SessionPayload(udfs=[{"result_id": 1}]).SerializeToString()


@pytest.mark.parametrize("payload", [b"", WITHOUT_UDF, WITHOUT_FUNCTION], ids=["empty", "no UDF", "no function"])
async def test_a_payload_without_a_function_is_the_clients_error(channel: grpc.aio.Channel, payload: bytes) -> None:
    error = await error_of(channel, first_message(command(payload=payload)), finish(0))
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert "no UDF" in error.message


async def test_a_deferred_payload_as_large_as_a_message_may_be_reaches_the_worker(channel: grpc.aio.Channel) -> None:
    deferring = command(payload=b"", deferred_payload=DeferredPayload(size_bytes=MAX_MESSAGE_BYTES))
    parts = [payload_part(b"\xff" * PART_BYTES, start) for start in range(0, MAX_MESSAGE_BYTES, PART_BYTES)]
    error = await error_of(channel, first_message(deferring), *parts, finish(0))
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert "not a SessionPayload" in error.message
