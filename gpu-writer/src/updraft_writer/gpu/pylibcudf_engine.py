# SPDX-License-Identifier: Apache-2.0
"""Implementation of `engine` with libcudf. Only this module imports libcudf, and only if there is a device.

Three properties of the library shape this module. If the library's `write` runs out of memory, the library's writer is
unchanged and `write` can be called again. A writer writes its footer when it is freed, so the writer's sink must exist
until then. If an object fails while it is freed, the process ends.
"""

import ctypes
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pylibcudf as plc
import rmm
from cuda.bindings import runtime
from rmm.pylibrmm.stream import Stream

from updraft_writer.gpu.engine import (
    DeviceColumn,
    DeviceError,
    DeviceFile,
    DeviceMemoryError,
    DictionaryPolicy,
    OrcPlan,
    ParquetPlan,
    Plan,
    Statistics,
)

_COMPRESSIONS = {
    "none": plc.io.types.CompressionType.NONE,
    "snappy": plc.io.types.CompressionType.SNAPPY,
    "zstd": plc.io.types.CompressionType.ZSTD,
    "lz4": plc.io.types.CompressionType.LZ4,
}
_CODEC_OF_FORMAT = {
    ParquetPlan: _COMPRESSIONS | {"gzip": plc.io.types.CompressionType.GZIP},
    OrcPlan: _COMPRESSIONS | {"gzip": plc.io.types.CompressionType.ZLIB},
}
_STATISTICS = {
    Statistics.NONE: plc.io.types.StatisticsFreq.STATISTICS_NONE,
    Statistics.ROW_GROUPS: plc.io.types.StatisticsFreq.STATISTICS_ROWGROUP,
    # The library's COLUMN stands for Parquet's column and offset indexes.
    Statistics.PAGES: plc.io.types.StatisticsFreq.STATISTICS_COLUMN,
}
_DICTIONARIES = {
    DictionaryPolicy.WHERE_SMALLER: plc.io.types.DictionaryPolicy.ADAPTIVE,
    DictionaryPolicy.ALWAYS: plc.io.types.DictionaryPolicy.ALWAYS,
    DictionaryPolicy.NEVER: plc.io.types.DictionaryPolicy.NEVER,
}
_ENCODINGS = {
    "DELTA_BINARY_PACKED": plc.io.types.ColumnEncoding.DELTA_BINARY_PACKED,
    "DELTA_BYTE_ARRAY": plc.io.types.ColumnEncoding.DELTA_BYTE_ARRAY,
}
_NARROW_DECIMALS = {32: plc.TypeId.DECIMAL32, 64: plc.TypeId.DECIMAL64}
# Most rows of a row group: so many that the bytes alone limit a row group. By default, the library cuts at a million
# rows.
_ROW_GROUP_ROWS = 1 << 30
# Index of a list's values among the list's children, after the offsets.
_VALUES = 1
# Share of the free GPU memory that the writer uses by default. The driver, the kernels and other processes use the
# remaining memory.
_USED_FRACTION = 0.8


def open_engine(memory_bytes: int) -> "PylibcudfEngine":
    """Open the engine of the current device. A `memory_bytes` of 0 uses a share of the free memory."""
    free_bytes, _ = rmm.mr.available_device_memory()
    return PylibcudfEngine(memory_bytes or int(_USED_FRACTION * free_bytes))


class PylibcudfEngine:
    """Engine on the first GPU that this process sees. The engine uses at most `memory_bytes` of the GPU's memory."""

    name = "pylibcudf"

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        # Keep a reference to the resource, which must outlive everything that it has allocated.
        self._resource = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaAsyncMemoryResource(), memory_bytes)
        rmm.mr.set_current_device_resource(self._resource)

    def has_codec(self, plan: Plan) -> bool:
        """Return whether libcudf can write the plan's codec."""
        compression = _CODEC_OF_FORMAT[type(plan)][plan.codec]
        if isinstance(plan, ParquetPlan):
            return bool(plc.io.parquet.is_supported_write_parquet(compression))
        return bool(plc.io.orc.is_supported_write_orc(compression))

    def pinned(self, size: int) -> memoryview:
        """Return pinned memory, which is never freed; raises DeviceMemoryError."""
        status, address = runtime.cudaMallocHost(size)
        if status != runtime.cudaError_t.cudaSuccess:
            # Clear the CUDA error. Otherwise libcudf would report it for its next kernel.
            runtime.cudaGetLastError()
            raise DeviceMemoryError(f"the driver reports {status.name} for {size} bytes of pinned memory")
        return memoryview((ctypes.c_ubyte * size).from_address(int(address))).cast("B")

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        """Open a new file. It takes no device memory before the first row."""
        return _PylibcudfFile(plan, output)

    def check(self) -> None:
        """Raise DeviceError if the device can no longer be used."""
        (status,) = runtime.cudaDeviceSynchronize()
        if status != runtime.cudaError_t.cudaSuccess:
            raise DeviceError(f"the device reports {status.name}")


class _PylibcudfFile:
    """Chunked writer, opened with the first table, whose columns determine its metadata."""

    def __init__(self, plan: Plan, output: io.RawIOBase) -> None:
        self._plan = plan
        self._output = output
        self._sink = plc.io.types.SinkInfo([output])
        # Each file uses its own stream, so that a file's steps run in order and other files do not wait for them.
        self._stream: Any = None
        self._writer: Any = None

    def write(self, parts: Iterable[pa.Table]) -> None:
        """Encode the rows of all parts; raises DeviceMemoryError and DeviceError."""
        on_device: list[Any] = []
        with _device_errors():
            try:
                self._copy(parts, on_device)
                if self._writer is None:
                    self._writer = _opened(self._plan, self._sink, on_device[0], self._stream)
                self._writer.write(on_device[0])
            finally:
                # The exception keeps this frame alive, but the frame must not keep device memory alive.
                on_device.clear()

    def _copy(self, parts: Iterable[pa.Table], on_device: list[Any]) -> None:
        """Copy the parts to the device as one table, and leave only this table in `on_device`."""
        if self._stream is None:
            self._stream = Stream()
        for part in parts:
            on_device.append(_narrowed(plc.Table.from_arrow(part, stream=self._stream), self._plan, self._stream))
            # Wait for the copy, because the caller reuses the part's memory next. Other files' streams continue
            # meanwhile.
            self._stream.synchronize()
        if len(on_device) > 1:
            on_device[:] = [plc.concatenate.concatenate(on_device, stream=self._stream)]

    def close(self) -> None:
        """Write the footer, unless nothing was written; raises DeviceError."""
        if self._writer is None:
            return
        with _device_errors():
            if isinstance(self._plan, ParquetPlan):
                self._writer.close([])
            else:
                self._writer.close()

    def __del__(self) -> None:
        # Writing ORC's footer needs the device, which may be lost or full. A writer that cannot be closed is never
        # freed, because a failure in freeing it would end the process.
        if isinstance(self._plan, OrcPlan):
            try:
                self.close()
            except DeviceError:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
                return
        # Free the writer before the sink that the writer writes to.
        self._writer = None


@contextmanager
def _device_errors() -> Iterator[None]:
    """Map the library's exceptions, which can be any C++ exception, to the exceptions of `engine`."""
    try:
        yield
    except MemoryError as error:
        raise DeviceMemoryError(str(error)) from error
    except Exception as error:
        raise DeviceError(f"{type(error).__name__}: {error}") from error


def _opened(plan: Plan, sink: Any, table: Any, stream: Any) -> Any:
    metadata = _metadata(plan.columns, table)
    if isinstance(plan, ParquetPlan):
        for column, described in zip(plan.columns, metadata.column_metadata, strict=True):
            if encoding := plan.encodings.get(column.name):
                described.set_encoding(_ENCODINGS[encoding])
    return (
        _parquet(plan, sink, metadata, stream) if isinstance(plan, ParquetPlan) else _orc(plan, sink, metadata, stream)
    )


def _parquet(plan: ParquetPlan, sink: Any, metadata: Any, stream: Any) -> Any:
    builder = (
        plc.io.parquet.ChunkedParquetWriterOptions.builder(sink)
        .metadata(metadata)
        .key_value_metadata([dict(plan.key_values)])
        .compression(_CODEC_OF_FORMAT[ParquetPlan][plan.codec])
        .stats_level(_STATISTICS[plan.statistics])
        .row_group_size_rows(_ROW_GROUP_ROWS)
    )
    if plan.page_bytes:
        builder = builder.max_page_size_bytes(plan.page_bytes)
    if plan.row_group_bytes:
        builder = builder.row_group_size_bytes(plan.row_group_bytes)
    options = builder.build()
    options.set_dictionary_policy(_DICTIONARIES[plan.dictionaries])
    return plc.io.parquet.ChunkedParquetWriter.from_options(options, stream)


def _orc(plan: OrcPlan, sink: Any, metadata: Any, stream: Any) -> Any:
    options = (
        plc.io.orc.ChunkedOrcWriterOptions.builder(sink)
        .metadata(metadata)
        .compression(_CODEC_OF_FORMAT[OrcPlan][plan.codec])
        .enable_statistics(plc.io.types.StatisticsFreq.STATISTICS_ROWGROUP)
        .build()
    )
    options.set_stripe_size_bytes(plan.stripe_bytes)
    options.set_row_index_stride(plan.row_index_stride)
    return plc.io.orc.OrcChunkedWriter.from_options(options, stream)


def _narrowed(table: Any, plan: Plan, stream: Any) -> Any:
    """Return a table whose decimals are as narrow as in the file."""
    pairs = zip(table.columns(), plan.columns, strict=True)
    return plc.Table([_narrowed_column(column, described, stream) for column, described in pairs])


def _narrowed_column(column: Any, described: DeviceColumn, stream: Any) -> Any:
    if described.narrow_bits is not None:
        narrow = plc.DataType(_NARROW_DECIMALS[described.narrow_bits], column.type().scale())
        return plc.unary.cast(column, narrow, stream=stream)
    if not described.children:
        return column
    children = list(column.children())
    first = 0 if pa.types.is_struct(described.data_type) else _VALUES
    for index, child in enumerate(described.children, start=first):
        children[index] = _narrowed_column(children[index], child, stream)
    # Build the column again with the new children. This does not copy the column's buffers.
    mask, nulls = column.null_mask(), column.null_count()
    return plc.Column(column.type(), column.size(), column.data(), mask, nulls, column.offset(), children)


def _metadata(columns: tuple[DeviceColumn, ...], table: Any) -> Any:
    metadata = plc.io.types.TableInputMetadata(table)
    for column, described in zip(columns, metadata.column_metadata, strict=True):
        _describe(described, column)
    return metadata


def _describe(described: Any, column: DeviceColumn) -> None:
    described.set_name(column.name).set_nullability(column.nullable)
    if column.is_int96:
        described.set_int96_timestamps(True)
    if column.is_binary:
        described.set_output_as_binary(True)
    if column.precision is not None:
        described.set_decimal_precision(column.precision)
    if column.is_map:
        described.set_list_column_as_map()
    if pa.types.is_struct(column.data_type):
        for index, child in enumerate(column.children):
            _describe(described.child(index), child)
    elif column.children:
        [values] = column.children
        _describe(described.child(_VALUES), values)
