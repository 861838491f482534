# SPDX-License-Identifier: Apache-2.0
"""Real workers behind a real front with short silence limits: computing workers continue, hanging ones are ended."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from flight_messages import FlightData, all_replies, finish, keep_alive, reply_metadata
from front_harness import RunningFront, running_front_over
from pool_driver import Zygotes, numbers, split
from session_commands import scalar_arrow

from updraft.service.lifecycle import Event
from updraft.v1.exchange_pb2 import ErrorKind, RequestMetadata
from updraft_server.linux.process_trees import process_trees
from updraft_server.pool.interface import until
from updraft_server.pool.leases import PoolSettings
from updraft_server.pool.pool import Pool

# Long enough for a computing worker to get a hundredth of a second of CPU on a busy machine.
SILENCE_SECONDS = 1.5


@asynccontextmanager
async def impatient_front(zygotes: Zygotes, directory: Path, **changes: Any) -> AsyncIterator[RunningFront]:
    values: dict[str, Any] = {
        "client_silence_seconds": SILENCE_SECONDS,
        "worker_silence_seconds": SILENCE_SECONDS,
        "session_functions": "unsigned",
        **changes,
    }
    pool = Pool(PoolSettings(workers=1, zygotes=zygotes), lambda _: None, lambda _: None)
    async with running_front_over(pool, artifacts_directory=directory / "artifacts", **values) as front:
        yield front


async def opened(front: RunningFront, function: Callable[..., Any]) -> Any:
    call = front.exchange()
    header, _ = split(numbers(1).schema.serialize())
    command = scalar_arrow(function).SerializeToString()
    request = FlightData(flight_descriptor={"type": 2, "cmd": command}, data_header=bytes(header))
    await call.write(request.SerializeToString())
    return call


async def finish_with_one_batch(call: Any) -> None:
    header, body = split(numbers(3).serialize())
    metadata = RequestMetadata(sequence=1).SerializeToString()
    await call.write(
        FlightData(data_header=bytes(header), app_metadata=metadata, data_body=bytes(body)).SerializeToString()
    )
    await call.write(finish(1, rows=3))
    await call.done_writing()


async def ended(call: Any) -> tuple[list[bytes], Any]:
    return await asyncio.wait_for(all_replies(call), 60)


def computes(limits: int) -> Callable[..., Any]:
    """Return a function that computes for this many limits; nested, so that it is pickled by value."""
    seconds = limits * SILENCE_SECONDS

    def function(x):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return x

    return function


def sleeps() -> Callable[..., Any]:
    def function(x):
        time.sleep(600)
        return x

    return function


def waits_for_a_child_that_computes(limits: int) -> Callable[..., Any]:
    program = f"import time\nwhile time.process_time() < {limits * SILENCE_SECONDS}: pass"

    def function(x):
        subprocess.run([sys.executable, "-c", program], check=True)
        return x

    return function


@pytest.mark.parametrize("make", [computes, waits_for_a_child_that_computes], ids=["itself", "child"])
async def test_a_function_may_compute_longer_than_every_limit_of_silence(
    zygotes: Zygotes, tmp_path: Path, make: Callable[..., Any]
) -> None:
    async with impatient_front(zygotes, tmp_path) as front:
        call = await opened(front, make(2))
        await finish_with_one_batch(call)
        replies, error = await ended(call)
    assert error is None
    assert reply_metadata(replies[-1]).finish.rows == 3


async def test_a_function_that_hangs_is_ended_and_its_client_told(zygotes: Zygotes, tmp_path: Path) -> None:
    async with impatient_front(zygotes, tmp_path) as front:
        pool = front.pool
        (hanging,) = pool.workers
        call = await opened(front, sleeps())
        await finish_with_one_batch(call)
        replies, error = await ended(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_DEADLINE
        assert "--worker-silence-seconds" in error.details()
        async with asyncio.timeout(60):
            await until(pool, lambda: pool.idle == 1 and hanging.worker not in {info.worker for info in pool.workers})


async def test_a_client_with_nothing_to_send_keeps_its_exchange_by_keepalives(zygotes: Zygotes, tmp_path: Path) -> None:
    async with impatient_front(zygotes, tmp_path) as front:
        call = await opened(front, computes(0))
        for _ in range(30):
            await asyncio.sleep(SILENCE_SECONDS / 10)
            await call.write(keep_alive())
        await finish_with_one_batch(call)
        replies, error = await ended(call)
    assert error is None
    assert reply_metadata(replies[-1]).finish.rows == 3


async def test_a_client_of_a_real_worker_that_says_nothing_is_ended(zygotes: Zygotes, tmp_path: Path) -> None:
    async with impatient_front(zygotes, tmp_path) as front:
        call = await opened(front, computes(0))
        _, error = await ended(call)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "--client-silence-seconds" in error.details()


async def test_a_drain_tells_the_client_of_a_computing_worker_that_another_pool_can_take_it(
    zygotes: Zygotes, tmp_path: Path
) -> None:
    async with impatient_front(zygotes, tmp_path, drain_timeout_seconds=0.2) as front:
        call = await opened(front, computes(600))
        await finish_with_one_batch(call)
        # A worker with a batch keeps it until the end of the test.
        async with asyncio.timeout(60):
            await until(front.pool, lambda: front.pool.busy == 1)
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        replies, error = await ended(call)
    assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "the pool is draining and ended the exchange" in error.details()


def test_processor_time_and_memory_of_a_tree_are_those_of_a_process_and_its_children() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, start_new_session=True) as parent:
        end = time.monotonic() + 60
        while len(dict((tree := process_trees([parent.pid])[parent.pid]).ticks)) < 2:
            assert time.monotonic() < end, "the child did not start"
        assert parent.pid in dict(tree.ticks)
        assert os.getpid() not in dict(tree.ticks)
        assert tree.memory_bytes > process_trees([parent.pid])[parent.pid].memory_bytes / 2 > 0
        assert 0 < tree.own_bytes < tree.memory_bytes
        parent.communicate(b"\n")
    assert process_trees([parent.pid]) == {parent.pid: ((), 0, 0, 0, 0)}
