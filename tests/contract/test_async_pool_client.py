# SPDX-License-Identifier: Apache-2.0
"""`updraft.client` from an event loop: the same answers and errors, many calls at once, and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import updraft.client
from tests.support.called_pool import busy_workers, new_note
from tests.support.pool import LocalPool
from tests.support.waiting import HANG_SECONDS, until
from updraft.client import AsyncPoolClient
from updraft.errors import (
    UserError,
    WorkerError,
)


@pytest.fixture
def pool(functions_pool: LocalPool) -> LocalPool:
    return functions_pool


async def test_asyncio_gets_the_same_answers(pool: LocalPool) -> None:
    async def titles() -> AsyncIterator[pl.DataFrame]:
        for number in range(3):
            await asyncio.sleep(0.01)
            yield pl.DataFrame({"title": [f"T {number}"]})

    endpoint = pool.tcp_endpoint
    answer = await updraft.client.acall("text.slug", {"title": ["A b"]}, endpoint=endpoint)
    assert answer.to_pydict() == {"result": ["a-b"]}
    frames = [frame async for frame in updraft.client.astream("text.slug", titles(), endpoint=endpoint)]
    assert pl.concat(frames)["result"].to_list() == ["t-0", "t-1", "t-2"]


async def test_asyncio_runs_calls_together(pool: LocalPool) -> None:
    async with AsyncPoolClient(endpoint=pool.tcp_endpoint) as client:
        answers = await asyncio.gather(*(client.call("parity", {"x": [number]}) for number in range(50)))
    assert [answer.column("result")[0].as_py() for answer in answers] == [str(number % 2) for number in range(50)]


async def test_asyncio_gets_the_errors_of_function_and_input(pool: LocalPool) -> None:
    async def numbers() -> AsyncIterator[dict[str, list[int]]]:
        yield {"x": [1]}
        raise KeyError("mine")

    async with AsyncPoolClient(endpoint=pool.tcp_endpoint) as client:
        with pytest.raises(UserError) as raised:
            await client.call("inverse", {"x": [0]})
        assert "return 1 / x" in "".join(raised.value.__notes__)
        with pytest.raises(KeyError, match="mine"):
            [frame async for frame in client.stream("inverse", numbers())]
        with pytest.raises(WorkerError, match="batch 1 killed two workers"):
            await client.call("dies", {"x": [1]})


async def test_asyncio_gets_an_error_if_the_input_awaits_something_that_was_cancelled(pool: LocalPool) -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        forgotten = asyncio.create_task(asyncio.sleep(60))
        forgotten.cancel()
        await forgotten

    async with AsyncPoolClient(endpoint=pool.tcp_endpoint) as client, asyncio.timeout(HANG_SECONDS):
        with pytest.raises(RuntimeError, match="the input ended with CancelledError"):
            async for _ in client.stream("parity", batches()):
                pass


async def test_asyncio_gets_the_functions_error_even_while_it_sends(pool: LocalPool) -> None:
    # The pool ends each call while the client is still sending the end of its input.
    async with AsyncPoolClient(endpoint=pool.tcp_endpoint) as client:
        for _ in range(200):
            with pytest.raises(UserError, match=r"ZeroDivisionError|division by zero"):
                await client.call("inverse", {"x": [0]})


async def test_asyncio_gets_the_output_and_the_profile_of_its_own_calls(pool: LocalPool, tmp_path: Path) -> None:
    secret, other = tmp_path / "log-key", tmp_path / "other"
    secret.write_text("s" * 64)
    other.write_text("o" * 64)
    note = new_note("works")
    async with (
        AsyncPoolClient(endpoint=pool.tcp_endpoint, log_key_file=secret) as client,
        AsyncPoolClient(endpoint=pool.tcp_endpoint, log_key_file=other) as stranger,
    ):
        await client.call("talks", {"text": ["Ada"]})
        (line,) = await client.output(fields={"function": "talks"}, wait_seconds=20)
        assert (line["line"], line["function"]) == ("heard Ada", "talks")
        assert await client.output(after_microseconds=line["time_microseconds"]) == []
        assert await stranger.output() == []
        call = asyncio.create_task(client.call("works", {"note": [str(note)]}))
        await asyncio.to_thread(until, "the function runs", note.exists)
        profile = await client.profile("works", seconds=1)
        call.cancel()
    assert "works" in profile.folded
    assert profile.svg.startswith("<svg ")


async def test_a_cancelled_call_frees_its_worker(pool: LocalPool) -> None:
    note = new_note("cancelled")
    async with AsyncPoolClient(endpoint=pool.tcp_endpoint) as client:
        call = asyncio.create_task(client.call("sleepy", {"note": [str(note)]}))
        await asyncio.to_thread(until, "the function runs", note.exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(until, "no worker is busy", lambda: busy_workers(pool) == 0)


async def test_a_closed_stream_leaves_no_task(pool: LocalPool) -> None:
    async def titles() -> AsyncIterator[dict[str, list[str]]]:
        while True:
            yield {"title": ["A b"]}
            await asyncio.sleep(0.01)

    before = asyncio.all_tasks()
    stream = updraft.client.astream("text.slug", titles(), endpoint=pool.tcp_endpoint)
    await anext(stream)
    await stream.aclose()
    assert asyncio.all_tasks() == before
