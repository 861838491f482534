# SPDX-License-Identifier: Apache-2.0
"""Row groups that pass through pinned memory, which is ordinary memory here."""

import ctypes
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from device_for_tests import on_device
from spark_like import spark_table
from structlog.testing import capture_logs

from updraft_writer.encoders.gpu_columns import device_columns, device_table
from updraft_writer.gpu import staging as staging_module
from updraft_writer.gpu.engine import DeviceMemoryError
from updraft_writer.gpu.staging import Staging, pool_bytes

KIB, MIB = 1 << 10, 1 << 20
BLOCK_BYTES = 16 * KIB
NUMBERS = pa.table({"n": pa.array(range(100_000), pa.int64())})


class Pinned:
    """Allocator of blocks that fails once it has given out `most` of them."""

    def __init__(self, most: int = 1000) -> None:
        self.blocks: list[memoryview] = []
        self._most = most

    def __call__(self, size: int) -> memoryview:
        if len(self.blocks) == self._most:
            raise DeviceMemoryError("no more")
        self.blocks.append(memoryview(bytearray(size)))
        return self.blocks[-1]

    def has(self, buffer: pa.Buffer) -> bool:
        starts = (ctypes.addressof(ctypes.c_char.from_buffer(block)) for block in self.blocks)
        return any(start <= buffer.address and buffer.address + buffer.size <= start + BLOCK_BYTES for start in starts)


def staging(pinned: Pinned, blocks: int) -> Staging:
    return Staging(pinned, blocks * BLOCK_BYTES, block_bytes=BLOCK_BYTES)


def buffers(part: pa.Table) -> Iterator[pa.Buffer]:
    chunks = chain.from_iterable(column.chunks for column in part.columns)
    return (buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None and buffer.size)


def staged(pool: Staging, table: pa.Table) -> pa.Table:
    return pa.concat_tables([on_device(part) for part in pool.parts(table)])


def test_every_type_passes_the_pool_unchanged_and_slices_too() -> None:
    pinned = Pinned()
    pool = staging(pinned, 4)
    table = spark_table(3000)
    table = device_table(table, device_columns(table.schema))
    for rows in (table, table.slice(17, 1234), pa.concat_tables([table.slice(2500), table.slice(0, 3)])):
        parts = []
        for part in pool.parts(rows):
            assert all(map(pinned.has, buffers(part)))
            parts.append(on_device(part))
        assert len(parts) > 1
        assert pa.concat_tables(parts).equals(rows)
    assert pool.idle_bytes == pool.pinned_bytes == 4 * BLOCK_BYTES


def test_small_batches_share_a_part() -> None:
    table = pa.Table.from_batches(NUMBERS.slice(0, 1000).to_batches(max_chunksize=100))
    [part] = staging(Pinned(), 1).parts(table)
    assert part["n"].num_chunks == 10


def test_a_table_without_rows_is_one_part() -> None:
    [part] = staging(Pinned(), 1).parts(NUMBERS.slice(0, 0))
    assert (part.num_rows, part.schema) == (0, NUMBERS.schema)


def test_memory_is_pinned_as_it_is_needed_up_to_the_limit() -> None:
    pool = staging(Pinned(), 3)
    assert pool.pinned_bytes == 0
    staged(pool, NUMBERS.slice(0, 10))
    assert pool.pinned_bytes == BLOCK_BYTES
    staged(pool, NUMBERS)
    assert pool.pinned_bytes == 3 * BLOCK_BYTES


@pytest.mark.parametrize(
    ("limit_bytes", "expected_bytes"), [(256 * MIB, 0), (2048 * MIB, 64 * MIB), (1 << 40, 256 * MIB)]
)
def test_the_pool_is_a_part_of_the_memory_limit(limit_bytes: int, expected_bytes: int) -> None:
    assert pool_bytes(limit_bytes) == expected_bytes


def test_a_row_that_no_block_has_room_for_stays_where_it_was() -> None:
    pinned = Pinned()
    texts = pa.table({"s": ["a", "b" * 2 * BLOCK_BYTES, "c"]})
    pool = staging(pinned, 2)
    parts = list(pool.parts(texts))
    assert [part["s"].to_pylist() for part in parts][1] == ["b" * 2 * BLOCK_BYTES]
    assert [all(map(pinned.has, buffers(part))) for part in parts] == [True, False, True]
    assert staged(pool, texts).equals(texts)


@pytest.mark.parametrize("most", [0, 1])
def test_rows_pass_by_the_pool_if_no_more_memory_can_be_pinned(most: int) -> None:
    pool = staging(Pinned(most), 4)
    with capture_logs() as lines:
        assert staged(pool, NUMBERS).equals(NUMBERS)
        assert staged(pool, NUMBERS).equals(NUMBERS)
    assert (pool.pinned_bytes, len(lines)) == (most * BLOCK_BYTES, 1)


def test_many_files_share_few_blocks_and_none_waits_for_ever() -> None:
    pool = staging(Pinned(), 2)
    with ThreadPoolExecutor(8) as files:
        tables = [NUMBERS.slice(start, 50_000) for start in range(8)]
        assert all(
            each.result(60).equals(table)
            for each, table in zip([files.submit(staged, pool, table) for table in tables], tables, strict=True)
        )
    assert pool.idle_bytes == 2 * BLOCK_BYTES


def test_several_threads_copy_the_parts_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=60)
    copied = staging_module._copied

    def copied_together(*arguments: Any) -> pa.Table:
        together.wait()
        return copied(*arguments)

    monkeypatch.setattr(staging_module, "_copied", copied_together)
    assert staged(staging(Pinned(), 4), NUMBERS.slice(0, 15_000)).num_rows == 15_000


def test_a_block_is_not_used_again_while_a_thread_still_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, second, gate = staging_module._copied, threading.Event(), threading.Event()

    def slowly(part: pa.Table, block: memoryview) -> pa.Table:
        if part["n"][0].as_py():
            second.set()
            gate.wait(60)
        return copied(part, block)

    monkeypatch.setattr(staging_module, "_copied", slowly)
    pool = staging(Pinned(), 8)
    parts = pool.parts(NUMBERS.slice(0, 12_000))
    next(parts)
    assert second.wait(60)
    closing_thread = threading.Thread(target=parts.close)
    closing_thread.start()
    closing_thread.join(0.05)
    assert pool.idle_bytes < pool.pinned_bytes
    gate.set()
    closing_thread.join(60)
    assert pool.idle_bytes == pool.pinned_bytes


def test_a_device_that_fails_in_the_middle_leaves_no_block_taken() -> None:
    pool = staging(Pinned(), 4)
    with closing(pool.parts(NUMBERS)) as parts:
        next(parts)
        assert pool.idle_bytes < pool.pinned_bytes
    assert pool.idle_bytes == pool.pinned_bytes
    assert staged(pool, NUMBERS).equals(NUMBERS)
