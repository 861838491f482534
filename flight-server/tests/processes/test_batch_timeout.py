# SPDX-License-Identifier: Apache-2.0
"""A function that works too long on one batch ends with its worker; a slow client does not end anything."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pool_driver import (
    Zygotes,
    batches_of,
    exchange,
    numbers,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from session_commands import MAP_ARROW_ITER, rows_struct, scalar_arrow, session_command, udf

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import FrameSender, PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool

# Long compared with what these functions do before they sleep.
LIMIT_SECONDS = 2.0
LARGE_ROWS = 1_000_000


def sleeper() -> Any:
    """Return a function that never returns from its second batch; nested, so that it is pickled by value."""

    def sleeps_in_the_second_batch(x):
        if x[0].as_py() > 0:
            time.sleep(60)
        return x

    return sleeps_in_the_second_batch


def struct_command(function) -> exchange_pb2.ExchangeCommand:
    from pyspark.sql.types import LongType, StructField, StructType

    return session_command(MAP_ARROW_ITER, udf(function, StructType([StructField("_0", LongType())])))


async def death_of(
    pool: Pool,
    command: exchange_pb2.ExchangeCommand,
    batches: list[pa.RecordBatch],
    *,
    batch_timeout_seconds: float = LIMIT_SECONDS,
    idle_timeout_seconds: float = 0.0,
) -> int | None:
    lease = await pool.lease(None)
    await send_command(
        lease,
        batches[0].schema,
        command,
        batch_timeout_seconds=batch_timeout_seconds,
        idle_timeout_seconds=idle_timeout_seconds,
    )
    await send_requests(lease, requests(batches))
    with pytest.raises(PeerClosedError):
        await receive_reply(lease)
    death = await lease.death
    lease.release(LeaseOutcome.BROKEN)
    return death.signal


async def test_a_function_that_sleeps_for_ever_is_ended_and_the_pool_heals(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await death_of(pool, scalar_arrow(sleeper()), batches_of([2, 2])) == signal.SIGALRM
        await until(pool, lambda: pool.idle == 1)
        assert (await exchange(pool, batches_of([1]))).error is None


async def test_work_after_the_last_batch_has_the_limit_too(zygotes: Zygotes) -> None:
    def sleeps_after_the_last(batches):
        yield from batches
        time.sleep(60)

    async with running_pool(zygotes) as pool:
        command = struct_command(sleeps_after_the_last)
        assert await death_of(pool, command, [rows_struct(numbers(2))]) == signal.SIGALRM


async def test_a_slow_client_does_not_use_up_the_time_of_its_function(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        lease = await pool.lease(None)
        batches = batches_of([LARGE_ROWS, LARGE_ROWS])
        await send_command(lease, batches[0].schema, scalar_arrow(lambda x: x), batch_timeout_seconds=LIMIT_SECONDS)
        frames = requests(batches)
        await FrameSender(lease.socket).send(FrameKind.BATCH, *frames[0])
        # The worker waits for the next batch.
        await asyncio.sleep(1.25 * LIMIT_SECONDS)
        sending = asyncio.create_task(send_requests(lease, frames[1:]))
        # Replies are larger than the socket's buffers, so the worker blocks while it sends one.
        await asyncio.sleep(1.25 * LIMIT_SECONDS)
        reply = await receive_reply(lease)
        await sending
        assert reply.error is None
        assert reply.finish.rows == 2 * LARGE_ROWS
        lease.release(LeaseOutcome.CLEAN)


async def test_a_worker_whose_function_was_in_time_has_no_alarm_left(tmp_path: Path) -> None:
    def remaining(x):
        return pa.array([int(signal.getitimer(signal.ITIMER_REAL)[0] * 1000)] * len(x), pa.int64())

    own = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True))
    try:
        async with running_pool(own) as pool:
            limited = await exchange(pool, batches_of([1]), scalar_arrow(remaining), batch_timeout_seconds=60)
            free = await exchange(pool, batches_of([1]), scalar_arrow(remaining))
    finally:
        own.stop()
    assert 0 < limited.table.column(0)[0].as_py() <= 60_000
    assert free.table.column(0)[0].as_py() == 0


async def test_a_function_that_gives_nothing_for_too_long_is_idle(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        signal_of_death = await death_of(
            pool, scalar_arrow(sleeper()), batches_of([2, 2]), batch_timeout_seconds=0, idle_timeout_seconds=0.2
        )
        assert signal_of_death == signal.SIGALRM


async def test_a_function_that_gives_something_now_and_then_is_not_idle(zygotes: Zygotes) -> None:
    def slowly(batches):
        renewed = 0
        for batch in batches:
            for row in range(batch.num_rows):
                time.sleep(0.05)
                left_seconds, _ = signal.getitimer(signal.ITIMER_REAL)
                yield batch.slice(row, 1)
                renewed += signal.getitimer(signal.ITIMER_REAL)[0] > left_seconds
        if not renewed:
            raise RuntimeError("the clock counts on from the first batch")

    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, [rows_struct(numbers(10))], struct_command(slowly), idle_timeout_seconds=60)
    assert reply.error is None
    assert reply.table.num_rows == 10
