# SPDX-License-Identifier: Apache-2.0
"""Row groups that wait for an encoder that takes several in one step."""

import asyncio
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from open_file_bench import BATCH_BYTES, RAW_BYTES, ROWS, SCHEMA, Bench, rows_of
from sinks_for_tests import MemorySink

from updraft.errors import EncodeError
from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.open_file import OpenFile
from updraft_writer.pieces import Piece


class SlowFirst(ParquetEncoder):
    """Encoder that waits at its first row group until the test opens the gate."""

    def __init__(self, held_bytes: Callable[[], int] = lambda: 0) -> None:
        super().__init__(SCHEMA, ParquetOptions(), {})
        self.held_bytes: list[int] = []
        self._held_bytes = held_bytes
        self.started, self.gate = threading.Event(), threading.Event()
        self.steps: list[int] = []
        self.error: Exception | None = None

    def write(self, table: pa.Table) -> list[Piece]:
        self.steps.append(table.num_rows // ROWS)
        self.held_bytes.append(self._held_bytes())
        if len(self.steps) == 1:
            self.started.set()
            self.gate.wait(60)
        elif self.error:
            raise self.error
        return super().write(table)


async def with_row_groups(bench: Bench, sink: MemorySink, encoder: SlowFirst, row_groups: int) -> OpenFile:
    """Return a file with one row group in the encoder and the others waiting."""
    file = bench.file(sink, encoder=encoder)
    await file.open()
    await bench.add(file)
    await asyncio.to_thread(encoder.started.wait, 60)
    for index in range(1, row_groups):
        await bench.add_from(file, index * ROWS)
    # Lets each row group's task reach its wait for the encoder.
    await asyncio.sleep(0)
    return file


@pytest.mark.parametrize(
    ("most_joined_bytes", "steps"),
    [
        (0, [1, 1, 1, 1, 1, 1]),
        (RAW_BYTES, [1, 1, 1, 1, 1, 1]),
        (2 * RAW_BYTES, [1, 2, 2, 1]),
        (3 * RAW_BYTES + 1, [1, 3, 2]),
        (100 * RAW_BYTES, [1, 5]),
    ],
)
async def test_waiting_row_groups_are_encoded_together_in_their_order(
    bench: Bench, most_joined_bytes: int, steps: list[int]
) -> None:
    sink, encoder = MemorySink(), SlowFirst()
    file = await with_row_groups(bench, sink, encoder, 6)
    file.most_joined_bytes = lambda: most_joined_bytes
    assert bench.quota.held_bytes == file.moving_bytes == 6 * BATCH_BYTES
    encoder.gate.set()
    await file.finish()
    await file.close()
    assert encoder.steps == steps
    assert rows_of(sink.published) == list(range(6 * ROWS))
    assert bench.is_empty()


async def test_bytes_of_joined_row_groups_stay_reserved_while_they_are_encoded(bench: Bench) -> None:
    sink, encoder = MemorySink(), SlowFirst(lambda: bench.quota.held_bytes)
    file = await with_row_groups(bench, sink, encoder, 4)
    file.most_joined_bytes = lambda: 100 * RAW_BYTES
    encoder.gate.set()
    await file.finish()
    await file.close()
    assert encoder.steps == [1, 3]
    assert encoder.held_bytes[1] >= 3 * BATCH_BYTES
    assert bench.is_empty()


async def test_an_error_releases_the_bytes_of_all_joined_row_groups(bench: Bench) -> None:
    sink, encoder = MemorySink(), SlowFirst()
    file = await with_row_groups(bench, sink, encoder, 5)
    file.most_joined_bytes = lambda: 100 * RAW_BYTES
    encoder.error = EncodeError("no")
    encoder.gate.set()
    with pytest.raises(EncodeError):
        await file.finish()
    await file.close()
    assert encoder.steps == [1, 4]
    assert sink.published is None
    assert bench.is_empty()
