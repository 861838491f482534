# SPDX-License-Identifier: Apache-2.0
import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sinks_for_tests import MemorySink

from updraft.errors import EncodeError, InternalError, SinkError, UpdraftError
from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.open_file import OpenFile, Shape
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota, QuotaLimits
from updraft_writer.row_groups import reserved_bytes
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.sink import Sink
from updraft_writer.sinks.stored import RetryPolicy, StoredSink

SCHEMA = pa.schema({"n": pa.int64()})
ROWS = 1000
RAW_BYTES = 8 * ROWS
# What is reserved for a batch: itself and its encoding.
BATCH_BYTES = reserved_bytes(RAW_BYTES)


def batch(first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + ROWS), pa.int64())})


class Bench:
    """A quota, threads and files over sinks of the test's choice."""

    def __init__(self, threads: ThreadPoolExecutor, quota_bytes: int) -> None:
        self.quota = Quota(QuotaLimits(quota_bytes=quota_bytes, timeout_seconds=20.0))
        self.files = OpenFiles(self.quota, max_open_files=100)
        self.threads = threads

    def file(self, sink: Sink, *, row_group_bytes: int = RAW_BYTES, encoder: Any = None) -> OpenFile:
        shape = Shape(SCHEMA, lambda: row_group_bytes, max_rows=1 << 30)
        file = OpenFile(
            encoder or ParquetEncoder(SCHEMA, ParquetOptions(), {}),
            sink,
            shape,
            self.quota,
            tenant="t",
            encode_threads=self.threads,
        )
        self.files.add(file)
        return file

    async def add(self, file: OpenFile, count: int = 1) -> None:
        for index in range(count):
            file.add(batch(index * ROWS), await self.quota.acquire("t", BATCH_BYTES), raw_bytes=RAW_BYTES)

    def is_empty(self) -> bool:
        return (self.quota.held_bytes, self.quota.reservations, self.quota.waiting) == (0, 0, 0)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def bench(threads: ThreadPoolExecutor) -> Bench:
    return Bench(threads, 1 << 30)


def rows_of(data: bytes | None) -> list[int]:
    assert data is not None
    values: list[int] = pq.read_table(pa.BufferReader(data))["n"].to_pylist()
    return values


async def test_a_finished_file_has_every_row_in_order_and_nothing_is_held_any_more(bench: Bench) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 5)
    footer = await file.finish()
    await file.close()
    assert rows_of(sink.published) == list(range(5 * ROWS))
    assert (footer.row_groups, footer.rows, file.progress.stored_bytes) == (5, 5 * ROWS, len(sink.stored))
    assert bench.is_empty()


async def test_nothing_is_published_before_the_finish(bench: Bench) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 2)
    await file.close()
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_giving_up_drops_what_is_queued_without_writing_it(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    writing = asyncio.Event()
    sink.before_write = writing.set
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 10)
    await writing.wait()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert sink.steps == ["open", "write"]
    assert sink.discarded
    assert bench.is_empty()


@pytest.mark.parametrize("fail_at", ["write", "publish"])
async def test_the_first_error_is_what_everything_after_it_fails_with_and_the_sink_is_left_alone(
    bench: Bench, fail_at: str
) -> None:
    sink = MemorySink(fail_at=fail_at)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    with pytest.raises(SinkError) as raised:
        await file.finish()
    assert raised.value is sink.error
    steps = list(sink.steps)
    with pytest.raises(SinkError):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    with pytest.raises(SinkError):
        await file.finish()
    await file.close()
    assert sink.steps == steps
    assert steps.count(fail_at) == 1
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_a_sink_that_cannot_be_opened_takes_no_batch(bench: Bench) -> None:
    file = bench.file(MemorySink(fail_at="open"))
    with pytest.raises(SinkError):
        await file.open()
    with pytest.raises(SinkError):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    await file.close()
    assert bench.is_empty()


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


async def test_a_batch_after_the_finish_is_an_error_and_its_bytes_are_free(bench: Bench) -> None:
    file = bench.file(MemorySink())
    await file.open()
    await file.finish()
    with pytest.raises(InternalError, match="published"):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    await file.close()
    assert bench.is_empty()


class BrokenEncoder(ParquetEncoder):
    """Fails at its second row group."""

    def __init__(self, error: Exception) -> None:
        super().__init__(SCHEMA, ParquetOptions(), {})
        self.writes = 0
        self._error = error

    def write(self, table: pa.Table) -> list[bytes]:
        self.writes += 1
        if self.writes == 2:
            raise self._error
        return super().write(table)


@pytest.mark.parametrize(("raised", "seen"), [(EncodeError("no"), EncodeError), (ZeroDivisionError(), InternalError)])
async def test_an_encoder_that_fails_is_not_used_again(
    bench: Bench, raised: Exception, seen: type[UpdraftError]
) -> None:
    sink, encoder = MemorySink(), BrokenEncoder(raised)
    file = bench.file(sink, encoder=encoder)
    await file.open()
    await bench.add(file, 6)
    with pytest.raises(seen):
        await file.finish()
    await file.close()
    assert encoder.writes == 2
    assert sink.published is None
    assert bench.is_empty()


async def test_a_buffer_that_the_caller_reuses_after_it_was_released_does_not_change_the_file(bench: Bench) -> None:
    sink = MemorySink(gate=(gate := asyncio.Event()))
    file = bench.file(sink)
    await file.open()
    memory = bytearray(RAW_BYTES)
    values = pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(memory)])
    file.add(pa.record_batch([values], SCHEMA), await bench.quota.acquire("t", BATCH_BYTES), raw_bytes=RAW_BYTES)
    encoded = asyncio.Event()
    sink.before_write = encoded.set
    await encoded.wait()
    memory[:] = b"\xff" * RAW_BYTES
    gate.set()
    await file.finish()
    await file.close()
    assert rows_of(sink.published) == [0] * ROWS


async def test_row_groups_keep_their_order_when_their_encoding_takes_different_times(bench: Bench) -> None:
    class SlowFirst(ParquetEncoder):
        started = 0

        def write(self, table: pa.Table) -> list[bytes]:
            self.started += 1
            if self.started == 1:
                threading.Event().wait(0.05)
            return super().write(table)

    sink = MemorySink()
    file = bench.file(sink, encoder=SlowFirst(SCHEMA, ParquetOptions(), {}))
    await file.open()
    await bench.add(file, 8)
    await file.finish()
    await file.close()
    assert rows_of(sink.published) == list(range(8 * ROWS))


async def test_a_row_group_is_encoded_while_the_one_before_is_stored(bench: Bench) -> None:
    gate, encoded_twice = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Telling(ParquetEncoder):
        row_groups = 0

        def write(self, table: pa.Table) -> list[bytes]:
            self.row_groups += 1
            if self.row_groups == 2:
                loop.call_soon_threadsafe(encoded_twice.set)
            return super().write(table)

    file = bench.file(MemorySink(gate=gate), encoder=Telling(SCHEMA, ParquetOptions(), {}))
    await file.open()
    await bench.add(file, 2)
    async with asyncio.timeout(20):
        await encoded_twice.wait()
    gate.set()
    await file.finish()
    await file.close()


async def test_bytes_stay_reserved_until_the_storage_has_them(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    writing = asyncio.Event()
    sink.before_write = writing.set
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    await writing.wait()
    assert file.moving_bytes > 0
    gate.set()
    await file.finish()
    assert file.moving_bytes == 0
    await file.close()
    assert bench.is_empty()


async def test_bytes_stay_reserved_while_an_upload_is_tried_again(
    bench: Bench, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    class BusyStorage(LocalStorage):
        failures = 3

        def write(self, piece: bytes) -> None:
            self.failures -= 1
            if self.failures >= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().write(piece)

    held_bytes = []

    async def pause(_seconds: float) -> None:
        held_bytes.append(file.moving_bytes)

    path = tmp_path / "f"
    file = bench.file(StoredSink(BusyStorage(path), str(path), threads, RetryPolicy(), pause=pause))
    await file.open()
    await bench.add(file)
    await file.finish()
    await file.close()
    assert len(held_bytes) == 3
    assert min(held_bytes) > 0
    assert rows_of(path.read_bytes()) == list(range(ROWS))
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
    leave = await bench.quota.acquire("t", BATCH_BYTES)
    waiting = asyncio.create_task(bench.quota.acquire("t", 10 * BATCH_BYTES))
    await asyncio.sleep(0)
    file.add(batch(), leave, raw_bytes=RAW_BYTES)
    async with asyncio.timeout(10):
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
    async with asyncio.timeout(20):
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


async def test_who_stops_waiting_for_the_end_of_a_file_leaves_nothing_behind(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    finishing = asyncio.create_task(file.finish())
    await asyncio.sleep(0)
    finishing.cancel()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


EVENTS: list[Callable[[OpenFile], Any]] = [
    lambda file: file.flush(),
    lambda file: file.fail(SinkError("no")),
    lambda file: file.close(),
]


@pytest.mark.parametrize("event", EVENTS)
async def test_a_published_file_stays_published_whatever_comes_after(bench: Bench, event: Any) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    await file.finish()
    outcome = event(file)
    if outcome is not None:
        await outcome
    await file.close()
    assert sink.published is not None
    assert not sink.discarded
    assert bench.is_empty()
