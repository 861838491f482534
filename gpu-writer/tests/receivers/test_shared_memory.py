# SPDX-License-Identifier: Apache-2.0
"""Memory that receivers fill: ranges are returned automatically, and idle pages stay within their limit."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pyarrow as pa
import pytest

from updraft.arrow_decoder import ArrowDecoder
from updraft_writer.receivers import number_of_receivers
from updraft_writer.receivers.shared_memory import SharedMemory

MOST_BYTES = 16 << 20
BODY_BYTES = 1 << 20
BATCH = pa.record_batch({"n": pa.arange(0, 1000, 1)})


@pytest.mark.parametrize(("cores", "receivers"), [(1, 0), (15, 0), (16, 4), (64, 8)])
def test_receivers_follow_the_cores(cores: int, receivers: int) -> None:
    assert number_of_receivers(cores) == receivers


def with_memory(test: Callable[[SharedMemory], Awaitable[None]], *, room_bytes: int = MOST_BYTES) -> None:
    async def run() -> None:
        await test(SharedMemory(MOST_BYTES, lambda: room_bytes))

    asyncio.run(run())


async def block_ends() -> None:
    """Let the event loop take back blocks."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def pages_bytes(memory: SharedMemory) -> int:
    return os.fstat(memory.descriptor).st_blocks * 512


def fill(memory: SharedMemory, offset: int, size_bytes: int) -> None:
    os.pwrite(memory.descriptor, b"x" * size_bytes, offset)


def test_blocks_do_not_overlap() -> None:
    async def test(memory: SharedMemory) -> None:
        blocks = [memory.take(BODY_BYTES) for _ in range(5)]
        offsets = sorted(block.body_offset for block in blocks if block is not None)
        assert len(offsets) == 5
        assert all(after - before >= BODY_BYTES for before, after in pairwise(offsets))

    with_memory(test)


def test_a_block_comes_back_when_its_batch_is_gone() -> None:
    async def test(memory: SharedMemory) -> None:
        message = pa.ipc.read_message(BATCH.serialize())
        block = memory.take(message.body.size)
        assert block is not None
        os.pwrite(memory.descriptor, message.body, block.body_offset)
        encapsulated = block.encapsulated(memoryview(message.metadata).cast("B"))
        decoder = ArrowDecoder(BATCH.schema, max_batch_rows=1000)
        batch = decoder.decode_batch(encapsulated, sequence=1)
        column = batch.column(0).slice(10)
        del block, encapsulated, batch
        await block_ends()
        assert memory.used_bytes > 0
        assert column.to_pylist() == list(range(10, 1000))
        del column
        await block_ends()
        assert memory.used_bytes == 0

    with_memory(test)


def test_used_pages_serve_the_next_block() -> None:
    async def test(memory: SharedMemory) -> None:
        first = memory.take(BODY_BYTES)
        assert first is not None
        fill(memory, first.body_offset, BODY_BYTES)
        offset = first.body_offset
        del first
        await block_ends()
        second = memory.take(BODY_BYTES)
        assert second is not None
        assert second.body_offset == offset
        assert memory.idle_bytes == 0

    with_memory(test)


def test_idle_pages_stay_within_their_room() -> None:
    async def test(memory: SharedMemory) -> None:
        blocks = [memory.take(BODY_BYTES) for _ in range(8)]
        for block in blocks:
            assert block is not None
            fill(memory, block.body_offset, BODY_BYTES)
        del block
        blocks.clear()
        await asyncio.sleep(0.1)
        assert memory.used_bytes == 0
        assert memory.idle_bytes <= 2 * BODY_BYTES
        assert pages_bytes(memory) <= 2 * BODY_BYTES

    with_memory(test, room_bytes=2 * BODY_BYTES)


def test_pages_that_no_batch_needs_are_returned() -> None:
    async def test(memory: SharedMemory) -> None:
        blocks = [memory.take(BODY_BYTES) for _ in range(4)]
        for block in blocks:
            assert block is not None
            fill(memory, block.body_offset, BODY_BYTES)
        del block
        blocks.clear()
        await block_ends()
        memory.drop_unused()
        assert memory.idle_bytes >= 4 * BODY_BYTES, "they have been used since the last look"
        in_use = memory.take(BODY_BYTES)
        memory.drop_unused()
        assert memory.idle_bytes == 0
        assert pages_bytes(memory) <= memory.used_bytes
        assert in_use is not None

    with_memory(test)


def test_gaps_are_joined_before_memory_runs_out() -> None:
    async def test(memory: SharedMemory) -> None:
        for _ in range(20):
            blocks = [memory.take(BODY_BYTES + 4096 * extra) for extra in range(14)]
            assert all(blocks)
            del blocks
            await block_ends()
        assert memory.take(MOST_BYTES) is not None

    with_memory(test)


def test_a_long_header_does_not_fit_before_the_body() -> None:
    async def test(memory: SharedMemory) -> None:
        block = memory.take(BODY_BYTES)
        assert block is not None
        assert block.encapsulated(memoryview(bytes(1 << 20))) is None

    with_memory(test)
