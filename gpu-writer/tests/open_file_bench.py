# SPDX-License-Identifier: Apache-2.0
"""Open files over a quota and sinks that the test chooses, and batches for them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.open_file import OpenFile, Shape
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota, QuotaLimits
from updraft_writer.row_groups import reserved_bytes
from updraft_writer.sinks.sink import Sink

SCHEMA = pa.schema({"n": pa.int64()})
ROWS = 1000
RAW_BYTES = 8 * ROWS
# Reservation of a batch: its own bytes and those of its encoding.
BATCH_BYTES = reserved_bytes(RAW_BYTES)


def batch(first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + ROWS), pa.int64())})


class Bench:
    """Quota, threads and files over sinks that the test chooses."""

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
            retained=self.quota.charge("t"),
            encode_threads=self.threads,
        )
        self.files.add(file)
        return file

    async def add(self, file: OpenFile, count: int = 1) -> None:
        for index in range(count):
            await self.add_from(file, index * ROWS)

    async def add_from(self, file: OpenFile, first: int) -> None:
        file.add(batch(first), await self.quota.acquire("t", BATCH_BYTES), raw_bytes=RAW_BYTES)

    def is_empty(self) -> bool:
        return (self.quota.held_bytes, self.quota.reservations, self.quota.waiting) == (0, 0, 0)


def rows_of(data: bytes | None) -> list[int]:
    assert data is not None
    values: list[int] = pq.read_table(pa.BufferReader(data))["n"].to_pylist()
    return values
