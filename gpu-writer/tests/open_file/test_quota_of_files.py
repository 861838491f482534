# SPDX-License-Identifier: Apache-2.0
"""Quota held by open files, and how much they return when it runs short."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest
from open_file_bench import BATCH_BYTES, RAW_BYTES, ROWS, SCHEMA, Bench, batch, rows_of
from sinks_for_tests import MemorySink

from updraft.errors import DeadlineError, SinkError
from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.pieces import Piece


async def test_a_producer_that_waits_for_room_is_woken_by_the_error(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(fail_at="write", gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    waiting = asyncio.create_task(file.room_for(BATCH_BYTES, 0))
    await asyncio.sleep(0)
    gate.set()
    with suppress(SinkError):
        await waiting
    assert file.error is sink.error
    await file.close()
    assert bench.is_empty()


async def test_bytes_stay_reserved_until_the_storage_has_them(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    await sink.writing.wait()
    assert file.moving_bytes > 0
    gate.set()
    await file.finish()
    assert file.moving_bytes == 0
    await file.close()
    assert bench.is_empty()


class Splitting(ParquetEncoder):
    """Encoder that makes two pieces of every row group, and keeps 30 bytes from the first and 10 from the second."""

    retained_bytes = 0

    def write(self, table: pa.Table) -> list[Piece]:
        self.retained_bytes = 10 if self.retained_bytes else 30
        return [bytes(100), bytes(20)]


async def test_a_row_group_holds_what_is_not_stored_yet_and_the_file_what_its_encoder_keeps(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink, encoder=Splitting(SCHEMA, ParquetOptions(), {}))
    await file.open()
    for kept_bytes in (30, 10):
        await bench.add(file)
        for left_bytes in (120, 20):
            await sink.writing.wait()
            assert (file.moving_bytes, bench.quota.held_bytes) == (left_bytes, left_bytes + kept_bytes)
            sink.writing.clear()
            # Lets the single waiting piece through.
            gate.set()
            gate.clear()
    await sink.wrote.wait()
    gate.set()
    await file.close()
    assert bench.is_empty()


async def test_an_encoder_that_keeps_more_than_its_row_group_had_is_charged_for_all_of_it(bench: Bench) -> None:
    class Hoarding(Splitting):
        def write(self, table: pa.Table) -> list[Piece]:
            self.retained_bytes = 10 * BATCH_BYTES
            return [bytes(100)]

    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink, encoder=Hoarding(SCHEMA, ParquetOptions(), {}))
    await file.open()
    await bench.add(file)
    await sink.writing.wait()
    assert bench.quota.held_bytes == 100 + 10 * BATCH_BYTES
    gate.set()
    await file.close()
    assert bench.is_empty()


async def test_who_waits_for_room_in_a_file_that_fails_gets_its_error(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    waiting = asyncio.create_task(file.room_for(BATCH_BYTES, 0))
    await sink.writing.wait()
    file.interrupt(DeadlineError("silent for too long"))
    with pytest.raises(DeadlineError):
        await waiting
    gate.set()
    await file.close()
    assert bench.is_empty()


async def test_a_synchronous_producer_gets_room_only_when_all_before_is_stored(bench: Bench) -> None:
    sink = MemorySink()
    file = bench.file(sink, row_group_bytes=1 << 30)
    await file.open()
    for count in range(1, 4):
        await bench.add(file)
        await file.room_for(BATCH_BYTES, 0)
        assert sink.steps.count("write") == count
        assert (file.partial_bytes, file.moving_bytes) == (0, 0)
    await file.finish()
    await file.close()


async def test_when_the_quota_runs_short_the_largest_partial_row_group_is_encoded(threads: ThreadPoolExecutor) -> None:
    bench = Bench(threads, 10 * BATCH_BYTES)
    small, large = (bench.file(MemorySink(), row_group_bytes=1 << 30) for _ in range(2))
    for file, batches in ((small, 2), (large, 6)):
        await file.open()
        await bench.add(file, batches)
    (await bench.quota.acquire("t", 5 * BATCH_BYTES)).release()
    assert small.partial_bytes == 2 * BATCH_BYTES
    assert large.partial_bytes == 0
    for file in (small, large):
        await file.close()
    assert bench.is_empty()


async def test_a_batch_that_comes_while_others_wait_does_not_lie_in_a_partial_row_group(
    threads: ThreadPoolExecutor,
) -> None:
    bench = Bench(threads, 10 * BATCH_BYTES)
    file = bench.file(MemorySink(), row_group_bytes=1 << 30)
    await file.open()
    reservation = await bench.quota.acquire("t", BATCH_BYTES)
    waiting = asyncio.create_task(bench.quota.acquire("t", 10 * BATCH_BYTES))
    await asyncio.sleep(0)
    file.add(batch(), reservation, raw_bytes=RAW_BYTES)
    async with asyncio.timeout(60):
        (await waiting).release()
    await file.close()
    assert bench.is_empty()


async def test_a_batch_larger_than_the_quota_gets_in_although_partial_row_groups_fill_it(
    threads: ThreadPoolExecutor,
) -> None:
    bench = Bench(threads, 4 * BATCH_BYTES)
    files = [bench.file(MemorySink(), row_group_bytes=1 << 30) for _ in range(3)]
    for file in files:
        await file.open()
        await bench.add(file)
    async with asyncio.timeout(60):
        (await bench.quota.acquire("t", 100 * BATCH_BYTES)).release()
    for file in files:
        await file.close()
    assert bench.is_empty()


async def test_many_files_in_a_small_quota_all_finish(threads: ThreadPoolExecutor) -> None:
    bench = Bench(threads, 3 * BATCH_BYTES)

    async def write_one(rounds: int) -> bytes | None:
        sink = MemorySink()
        file = bench.file(sink, row_group_bytes=1 << 30)
        await file.open()
        await bench.add(file, rounds)
        await file.finish()
        await file.close()
        bench.files.remove(file)
        return sink.published

    async with asyncio.timeout(60):
        published = await asyncio.gather(*(write_one(1 + index % 5) for index in range(20)))
    assert [len(rows_of(data)) for data in published] == [ROWS * (1 + index % 5) for index in range(20)]
    assert bench.is_empty()


async def test_what_an_encoder_lets_go_of_is_its_row_groups_until_it_is_stored(threads: ThreadPoolExecutor) -> None:
    class Late(ParquetEncoder):
        """Encoder that keeps the first row group, and returns both with the second."""

        retained_bytes = 0

        def write(self, table: pa.Table) -> list[Piece]:
            self.retained_bytes = BATCH_BYTES - self.retained_bytes
            return [] if self.retained_bytes else [bytes(2 * BATCH_BYTES)]

    bench = Bench(threads, 2 * BATCH_BYTES)
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink, encoder=Late(SCHEMA, ParquetOptions(), {}))
    await file.open()
    await bench.add(file, 2)
    waiting = asyncio.create_task(bench.quota.acquire("t", BATCH_BYTES))
    await sink.writing.wait()
    await asyncio.sleep(0)
    assert (waiting.done(), bench.quota.held_bytes) == (False, 2 * BATCH_BYTES)
    gate.set()
    async with asyncio.timeout(60):
        (await waiting).release()
    await file.close()
    assert bench.is_empty()
