# SPDX-License-Identifier: Apache-2.0
"""Fake device: pyarrow behind the device interface, which runs out of memory and fails when the test says so.

It shows what the writer does around a device. Only tests/on_gpu shows what a GPU's library writes.
"""

import io
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.engine import DeviceError, DeviceFile, DeviceMemoryError, ParquetPlan, Plan
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.gpu.staging import Staging

# Small enough that most tables of the tests need several blocks.
BLOCKS, BLOCK_BYTES = 3, 16 << 10


def on_device(part: pa.Table) -> pa.Table:
    """Copy a part, whose memory is used again."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as stream:
        stream.write_table(part)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


class DeviceForTests:
    """Fake device; the next steps raise `failures`, one each (None: no failure); it has room for `most_rows`."""

    name = "device"
    memory_bytes = 1 << 30

    def __init__(self, *failures: DeviceError | None, most_rows: int = 1 << 40, codecs: tuple[str, ...] = ()) -> None:
        self.most_rows = most_rows
        self.is_lost = False
        self.plans: list[Plan] = []
        self.written: list[pa.Table] = []
        self._failures: Iterator[DeviceError | None] = iter(failures)
        self._codecs = codecs

    def has_codec(self, plan: Plan) -> bool:
        return plan.codec in (self._codecs or ("snappy", "none"))

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        self.plans.append(plan)
        return _File(self, plan, output)

    def pinned(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def check(self) -> None:
        if self.is_lost:
            raise DeviceError("the device says no")

    def step(self, rows: int = 0) -> None:
        if (failure := next(self._failures, None)) is not None:
            raise failure
        if rows > self.most_rows:
            raise DeviceMemoryError(f"no room for {rows} rows")


class _File:
    def __init__(self, device: DeviceForTests, plan: Plan, output: io.RawIOBase) -> None:
        self._device = device
        self._plan = plan
        schema = pa.schema([column.field for column in plan.columns])
        self._writer: Any
        if isinstance(plan, ParquetPlan):
            dictionaries = [name for name in schema.names if name not in plan.encodings] if plan.encodings else True
            self._writer = pq.ParquetWriter(
                output,
                schema,
                compression=plan.codec,
                use_dictionary=dictionaries,
                column_encoding=dict(plan.encodings) or None,
                store_schema=False,
            )
            self._writer.add_key_value_metadata(dict(plan.key_values))
        else:
            self._writer = orc.ORCWriter(output, compression="uncompressed" if plan.codec == "none" else plan.codec)

    def write(self, parts: Iterable[pa.Table]) -> None:
        table = pa.concat_tables([on_device(part) for part in parts])
        self._device.step(table.num_rows)
        self._device.written.append(table)
        if isinstance(self._plan, ParquetPlan):
            self._writer.write(table, row_group_size=_rows_of(table, self._plan.row_group_bytes))
        else:
            self._writer.write(table)

    def close(self) -> None:
        self._device.step()
        self._writer.close()


def _rows_of(table: pa.Table, row_group_bytes: int | None) -> int:
    """Return the number of rows at which a table is cut into row groups."""
    groups = math.ceil(int(table.nbytes) / row_group_bytes) if row_group_bytes else 1
    return max(1, math.ceil(int(table.num_rows) / max(1, groups)))


def gpu_of(device: DeviceForTests, **limits: Any) -> Gpu:
    """Return a `Gpu` for the writer: the fake device with admission and staging memory."""
    admission = DeviceAdmission(DeviceLimits(**{"memory_bytes": device.memory_bytes, **limits}))
    return Gpu(device, admission, Staging(device.pinned, BLOCKS * BLOCK_BYTES, block_bytes=BLOCK_BYTES))
