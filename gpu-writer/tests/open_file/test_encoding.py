# SPDX-License-Identifier: Apache-2.0
"""Row groups of an open file are encoded once, in order, while others are stored."""

import asyncio
import threading

import pyarrow as pa
import pytest
from open_file_bench import BATCH_BYTES, RAW_BYTES, ROWS, SCHEMA, Bench, rows_of
from sinks_for_tests import MemorySink
from structlog.testing import capture_logs

from updraft.errors import EncodeError, InternalError, UpdraftError
from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.pieces import Piece


class BrokenEncoder(ParquetEncoder):
    """Encoder that fails at its second row group."""

    def __init__(self, error: Exception) -> None:
        super().__init__(SCHEMA, ParquetOptions(), {})
        self.writes = self.closes = 0
        self._error = error

    def write(self, table: pa.Table) -> list[Piece]:
        self.writes += 1
        if self.writes == 2:
            raise self._error
        return super().write(table)

    def close(self) -> list[Piece]:
        self.closes += 1
        return super().close()


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
    assert (encoder.writes, encoder.closes) == (2, 0)
    assert sink.published is None
    assert bench.is_empty()


async def test_a_footer_that_fails_by_a_defect_is_the_writers_error(bench: Bench) -> None:
    class NoFooter(ParquetEncoder):
        def close(self) -> list[Piece]:
            raise ZeroDivisionError

    sink = MemorySink()
    file = bench.file(sink, encoder=NoFooter(SCHEMA, ParquetOptions(), {}))
    await file.open()
    with pytest.raises(InternalError):
        await file.finish()
    await file.close()
    assert sink.published is None


async def test_a_defect_is_logged_with_its_exception_and_an_error_of_the_data_is_not(bench: Bench) -> None:
    logged = []
    for raised in (EncodeError("no"), ZeroDivisionError()):
        file = bench.file(MemorySink(), encoder=BrokenEncoder(raised))
        await file.open()
        with capture_logs() as lines:
            await bench.add(file, 2)
            with pytest.raises(UpdraftError):
                await file.finish()
        await file.close()
        logged.append([line["exc_info"] for line in lines])
    assert logged == [[], [raised]]


async def test_a_buffer_that_the_caller_reuses_after_it_was_released_does_not_change_the_file(bench: Bench) -> None:
    sink = MemorySink(gate=(gate := asyncio.Event()))
    file = bench.file(sink)
    await file.open()
    memory = bytearray(RAW_BYTES)
    values = pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(memory)])
    file.add(pa.record_batch([values], SCHEMA), await bench.quota.acquire("t", BATCH_BYTES), raw_bytes=RAW_BYTES)
    await sink.writing.wait()
    memory[:] = b"\xff" * RAW_BYTES
    gate.set()
    await file.finish()
    await file.close()
    assert rows_of(sink.published) == [0] * ROWS


async def test_row_groups_keep_their_order_when_their_encoding_takes_different_times(bench: Bench) -> None:
    class SlowFirst(ParquetEncoder):
        started = 0

        def write(self, table: pa.Table) -> list[Piece]:
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

        def write(self, table: pa.Table) -> list[Piece]:
            self.row_groups += 1
            if self.row_groups == 2:
                loop.call_soon_threadsafe(encoded_twice.set)
            return super().write(table)

    file = bench.file(MemorySink(gate=gate), encoder=Telling(SCHEMA, ParquetOptions(), {}))
    await file.open()
    await bench.add(file, 2)
    async with asyncio.timeout(60):
        await encoded_twice.wait()
    gate.set()
    await file.finish()
    await file.close()
