# SPDX-License-Identifier: Apache-2.0
"""Stand-in for a GPU that copies instead of encoding, so that benchmarks measure the writer's own cost.

A GPU reads pinned memory without the CPU, so the stand-in does not read a row group that lies in pinned memory. Without
pinned memory, the stand-in copies the row group, as a driver does. It returns as many bytes as an encoded row group
contains, one column of pages at a time, from one reused buffer, as libcudf does. The file's footer describes nulls
instead of the values.
"""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from updraft.flight_data import varint
from updraft_writer.gpu.engine import DeviceFile, DeviceMemoryError, Plan

# Default value of libcudf.
_PAGE_ROWS = 20_000


class FoundDevice:
    """Replacement for the writer's `find_engine`, for `tests.support.constants`. It returns the stand-in."""

    def __repr__(self) -> str:
        return f"lambda *_, **__: __import__({__name__!r}, fromlist=['x']).CopyingDevice(1 / 7)"


class CopyingDevice:
    """Device that returns `fraction` bytes for each raw byte; `pins` says whether it has pinned memory."""

    name = "copies"
    memory_bytes = 1 << 36

    def __init__(self, fraction: float, *, pins: bool = True) -> None:
        self.fraction = fraction
        self.pins = pins
        self._memory = threading.local()
        self._footers: dict[tuple[pa.Schema, int], bytes] = {}

    def has_codec(self, _plan: Plan) -> bool:
        return True

    def pinned(self, size: int) -> memoryview:
        if not self.pins:
            raise DeviceMemoryError("this case has no pinned memory")
        return np.ones(size, np.uint8).data

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        return _CopyingFile(self, plan, output)

    def check(self) -> None:
        """Do nothing: this memory never fails."""

    def memory(self, purpose: str, size: int) -> Any:
        """Return memory that this thread has used before. Like libcudf, keep the memory for the next row group."""
        found = getattr(self._memory, purpose, None)
        if found is None or len(found) < size:
            found = np.ones(2 * size, np.uint8)
            setattr(self._memory, purpose, found)
        return found

    def footer_of(self, schema: pa.Schema, rows: int) -> pq.FileMetaData:
        """Return the footer of a file with one row group of nulls."""
        if (schema, rows) not in self._footers:
            sink = io.BytesIO()
            nulls = pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
            pq.write_table(nulls, sink, row_group_size=rows, store_schema=False, compression="none")
            self._footers[schema, rows] = sink.getvalue()
        return pq.read_metadata(io.BytesIO(self._footers[schema, rows]))


class _CopyingFile:
    def __init__(self, device: CopyingDevice, plan: Plan, output: io.RawIOBase) -> None:
        self._device = device
        self._schema = pa.schema([column.field for column in plan.columns])
        self._output = output
        self._row_groups: list[int] = []
        output.write(b"PAR1")

    def write(self, parts: Iterable[pa.Table]) -> None:
        rows, bytes_of_columns = 0, Counter[int]()
        for part in parts:
            rows += part.num_rows
            bytes_of_columns.update({index: _stored_bytes(column) for index, column in enumerate(part.columns)})
            if not self._device.pins:
                self._copy(part)
        self._row_groups.append(rows)
        pages = max(1, rows // _PAGE_ROWS)
        for column_bytes in bytes_of_columns.values():
            size = int(column_bytes * self._device.fraction) // pages
            header = np.frombuffer(_page_header(size), np.uint8)
            bounce = self._device.memory("bounce", pages * (len(header) + size))
            encoded = self._device.memory("encoded", size)
            at = 0
            for _ in range(pages):
                bounce[at : at + len(header)] = header
                at += len(header)
                bounce[at : at + size] = encoded[:size]
                at += size
            self._output.write(bounce.data[:at])

    def _copy(self, part: pa.Table) -> None:
        for column in part.columns:
            for buffer in (each for chunk in column.chunks for each in chunk.buffers() if each is not None):
                self._device.memory("device", buffer.size)[: buffer.size] = np.frombuffer(buffer, np.uint8)

    def close(self) -> None:
        metadata, *others = (self._device.footer_of(self._schema, rows) for rows in self._row_groups)
        for other in others:
            metadata.append_row_groups(other)
        sink = io.BytesIO()
        metadata.write_metadata_file(sink)
        self._output.write(sink.getvalue().removeprefix(b"PAR1"))


def _stored_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column as the device stores the column: decimals of few digits are narrowed."""
    is_narrow = pa.types.is_decimal128(column.type) and column.type.precision <= 18
    return int(column.nbytes) // (2 if is_narrow else 1)


def _page_header(size: int) -> bytes:
    """Return the header of a data page (version 1, plain) of `size` bytes, in compact Thrift."""
    number = varint(2 * size)
    values = b"\x15" + varint(2 * _PAGE_ROWS) + b"\x15\x00\x15\x06\x15\x06\x00"
    return b"\x15\x00\x15" + number + b"\x15" + number + b"\x2c" + values + b"\x00"
