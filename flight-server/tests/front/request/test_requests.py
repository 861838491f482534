# SPDX-License-Identifier: Apache-2.0
"""Calls other than exchanges: the front checks the caller first, then the request's size, then its content."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from fake_pool import FakePool
from front_harness import Running, RunningFront

from updraft.service.early_reads import EarlyReads
from updraft.service.flight_service import FLIGHT_SERVICE_NAME, MAX_ACTION_BODY_BYTES

METHODS = ["DoAction", "GetFlightInfo", "ListActions", "ListFlights"]


def call_of(front: RunningFront, method: str) -> Any:
    """Start a call whose request the test may send."""
    return front.channel.stream_stream(f"/{FLIGHT_SERVICE_NAME}/{method}")(timeout=60)


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_beyond_the_limit_is_refused_before_it_is_parsed(running_front: Running, method: str) -> None:
    async with running_front(FakePool()) as front:
        call = call_of(front, method)
        # Bytes that no protobuf message begins with.
        await call.write(b"\xff" * (MAX_ACTION_BODY_BYTES + 5000))
        code, details = await failure(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "a request has 4199304 bytes, the limit is 4198400" in details


@pytest.mark.parametrize("method", METHODS)
async def test_a_stranger_is_refused_before_the_request_is_read(
    running_front: Running, tmp_path: Path, method: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-that-nobody-sends\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        code, _ = await failure(call_of(front, method))
    assert code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_without_a_request_is_ended(
    running_front: Running, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners.FIRST_MESSAGE_TIMEOUT_SECONDS", 2.0)
    async with running_front(FakePool()) as front:
        silent, closed = call_of(front, method), call_of(front, method)
        await closed.done_writing()
        assert await failure(closed) == (grpc.StatusCode.INVALID_ARGUMENT, "the call ended before its request")
        code, details = await failure(silent)
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "no request within 2 seconds of the call's start")


async def test_requests_share_the_memory_of_messages_that_have_no_place_yet(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated = [0]
    watched = partial(EarlyReads, allocated=lambda: allocated[0])
    monkeypatch.setattr("updraft_server.front.process.EarlyReads", watched)
    monkeypatch.setattr("updraft.service.listeners.FIRST_MESSAGE_TIMEOUT_SECONDS", 60.0)
    async with running_front(FakePool()) as front:
        calls = [call_of(front, "DoAction") for _ in range(3)]
        ends = [asyncio.ensure_future(call.code()) for call in calls]
        allocated[0] = 1 << 60
        ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert {end.result() for end in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for call in calls:
            call.cancel()
        await asyncio.wait(ends)
