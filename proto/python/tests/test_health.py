# SPDX-License-Identifier: Apache-2.0
"""Health checks, which need no credentials, and their low cost to the service."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from updraft.errors import PoolFullError
from updraft.service import health
from updraft.service.flight_service import Call
from updraft.service.health import LIVE, MAX_QUESTION_BYTES, HealthBoard, Read

SERVING = health_pb2.HealthCheckResponse.SERVING
WAIT_SECONDS = 60


async def first_message(context: Any) -> bytes | None:
    return await Call(context).read()


async def refused_message(_context: Any) -> bytes | None:
    raise PoolFullError("full", retry_after_milliseconds=70)


async def served(board: HealthBoard, read: Read) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    board.add_to(server, read)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    board = HealthBoard()
    await board.publish([LIVE], serving=True)
    async for channel in served(board, first_message):
        yield channel


def question(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


async def check(channel: grpc.aio.Channel, name: str) -> Any:
    return (await health_pb2_grpc.HealthStub(channel).Check(question(name), timeout=WAIT_SECONDS)).status


def watch(channel: grpc.aio.Channel, name: str) -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(question(name), timeout=WAIT_SECONDS)


async def status_of(call: Any) -> grpc.StatusCode:
    """Read a watch to its end and return its status."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read():
            pass
    code: grpc.StatusCode = await call.code()
    return code


async def test_a_known_name_is_checked_and_watched(channel: grpc.aio.Channel) -> None:
    assert await check(channel, LIVE) == SERVING
    watched = watch(channel, LIVE)
    assert (await watched.read()).status == SERVING
    watched.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await check(channel, "nope")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_name_that_is_withdrawn_is_unknown_until_it_is_published_again() -> None:
    board = HealthBoard()
    await board.publish([LIVE], serving=False)
    async for channel in served(board, first_message):
        watched = watch(channel, LIVE)
        assert (await watched.read()).status != SERVING
        await board.withdraw([LIVE])
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await check(channel, LIVE)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        assert LIVE not in board.published
        await board.publish([LIVE], serving=True)
        assert await check(channel, LIVE) == SERVING
        watched.cancel()


async def test_a_long_question_is_not_kept(channel: grpc.aio.Channel) -> None:
    long = "x" * MAX_QUESTION_BYTES
    assert await status_of(watch(channel, long)) is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check(channel, long)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_no_question_is_refused(channel: grpc.aio.Channel) -> None:
    call: Any = channel.unary_unary(f"/{health.HEALTH_SERVICE_NAME}/Check")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(b"\xff", timeout=WAIT_SECONDS)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_question_is_read_only_where_there_is_memory_for_it() -> None:
    async for channel in served(HealthBoard(), refused_message):
        assert await status_of(watch(channel, LIVE)) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_watches_are_few_and_the_oldest_makes_room(
    channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MOST_WATCHES", 2)
    watches = []
    for _ in range(3):
        watches.append(watch(channel, LIVE))
        assert (await watches[-1].read()).status == SERVING
    oldest, *others = watches
    assert await status_of(oldest) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not any(other.done() for other in others)
    assert await check(channel, LIVE) == SERVING
    for other in others:
        other.cancel()
