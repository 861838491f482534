# SPDX-License-Identifier: Apache-2.0
"""Parquet and ORC on a GPU. If the GPU fails on the first row group, the CPU takes over; later, the file fails.

If the device has too little memory for a row group, the encoder encodes the halves separately. The file then has more
row groups.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pyarrow as pa

from updraft.errors import EncodeError
from updraft_writer.encoders.encoder import EncodedBytes, Encoder, Footer
from updraft_writer.encoders.gpu_layouts import Layout
from updraft_writer.encoders.page_checksums import PageChecksums
from updraft_writer.gpu.costs import bytes_by_kind
from updraft_writer.gpu.engine import DeviceError, DeviceFile, DeviceMemoryError
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.pieces import Blocks, Piece
from updraft_writer.reason import Reason, ReasonKind


class DeviceOutput(EncodedBytes):
    """File object whose `write` never raises. A later `check` raises the error instead.

    With `checksums`, `write` adds a checksum to each page.
    """

    def __init__(self, blocks: Blocks | None, checksums: PageChecksums | None) -> None:
        super().__init__(blocks)
        self._checksums = checksums
        self._has_all_pages = False
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Keep a copy of `data`."""
        view = memoryview(data).cast("B")
        try:
            if self._error is None:
                for part in self._with_checksums(view):
                    super().write(part)
        # The library would only print an exception raised here, and the file would lack these bytes.
        except BaseException as error:
            self._error = error
        return len(view)

    def _with_checksums(self, data: memoryview) -> Iterable[Piece]:
        return [data] if self._checksums is None or self._has_all_pages else self._checksums.add(data)

    def expect_end(self) -> None:
        """Treat all further bytes as the end of the file, which has no pages."""
        self._has_all_pages = True

    def take_end(self) -> list[Piece]:
        """Return the end of the file; raises EncodeError."""
        end = self.take()
        return end if self._checksums is None else [self._checksums.end(b"".join(end))]

    def check(self) -> None:
        """Raise the error that occurred in `write`, if any."""
        if self._error is not None:
            raise self._error


# Do not halve a table with fewer rows: if so few rows exceed the device's memory, their halves are unlikely to fit.
_FEWEST_ROWS = 1024
# Most raw bytes of one write. An H200 encodes twice as many bytes per second if a write has 400 MB instead of 128 MB,
# and twice as many again with 1.6 GB. The limit is lower, because the library needs columns below 2 GiB.
_MOST_JOINED_BYTES = 1 << 30


class GpuEncoder:
    """Encoder of one file. If the first row group fails, the CPU encoder that `make_cpu` creates takes over."""

    def __init__(self, gpu: Gpu, layout: Layout, make_cpu: Callable[[], Encoder], blocks: Blocks | None = None) -> None:
        self.reason = Reason(ReasonKind.GPU, "the GPU encoder supports all that the file needs")
        self._leaves: Reason | None = None
        self._gpu = gpu
        self._layout = layout
        self._make_cpu = make_cpu
        self._cpu: Encoder | None = None
        self._output = DeviceOutput(blocks, PageChecksums() if layout.has_page_checksums else None)
        self._file: DeviceFile | None = None
        self._rows = 0
        self._footer = Footer(row_groups=0, rows=0)

    @property
    def name(self) -> str:
        """Name of the encoder in receipts."""
        return self._cpu.name if self._cpu else f"{self._gpu.engine.name}-{self._layout.format}"

    @property
    def on_gpu(self) -> bool:
        """Whether the next row group is encoded on the GPU."""
        return self._cpu is None and self._leaves is None

    @property
    def retained_bytes(self) -> int:
        """Bytes retained between row groups: 0, because the GPU's library keeps only a little data for the footer."""
        return self._cpu.retained_bytes if self._cpu else 0

    @property
    def footer(self) -> Footer:
        """Facts from the footer, once the file is closed."""
        return self._cpu.footer if self._cpu else self._footer

    def choose(self, batches: Iterable[pa.RecordBatch], *, threads: int) -> None:
        """Move the file to the CPU if the CPU is expected to encode the first row group, `batches`, sooner.

        The CPU's encoder has `threads` threads. If no costs were measured, the file stays on the GPU.
        """
        if self._gpu.costs is None or self._rows or not self.on_gpu:
            return
        raw_bytes, codec = bytes_by_kind(batches), self._layout.plan.codec
        estimate = self._gpu.costs.estimate(raw_bytes, codec, self._gpu.admission.load, threads=threads)
        if estimate.gpu_is_sooner:
            self.reason = Reason(ReasonKind.GPU, str(estimate))
        else:
            self._leaves = Reason(ReasonKind.COST, str(estimate))

    def most_joined_bytes(self) -> int:
        """Return the most raw bytes of row groups that the next `write` may join; 0 if it must not join row groups."""
        if not self._rows or not self.on_gpu or not self._layout.joins:
            return 0
        return min(_MOST_JOINED_BYTES, self._gpu.admission.limits.shared_raw_bytes)

    def write(self, table: pa.Table) -> list[Piece]:
        """Encode a row group, or several; raises EncodeError."""
        leaves = self._gpu.lost or self._leaves
        if self._cpu is None and leaves is not None and not self._rows:
            self._move(leaves)
        if self._cpu is not None:
            return self._cpu.write(table)
        try:
            self._encode(self._layout.device_table(table))
        except DeviceError as error:
            return self._after(error).write(table)
        except pa.ArrowException as error:
            raise EncodeError(f"a row group cannot be copied to the GPU: {error}") from error
        return self._output.take()

    def close(self) -> list[Piece]:
        """Write the footer; raises EncodeError."""
        if self._cpu is not None or not self._rows:
            return (self._cpu or self._move(Reason(ReasonKind.NO_ROWS, "the file has no rows"))).close()
        assert self._file is not None, "rows were written without a file on the GPU"
        self._output.expect_end()
        try:
            self._file.close()
        except DeviceError as error:
            self._after(error)
        self._check_output()
        pieces, self._footer = self._layout.finished(self._output.take_end(), rows=self._rows)
        if self._footer.rows != self._rows:
            raise EncodeError(
                f"the GPU wrote a footer for {self._footer.rows} rows, not {self._rows}: the file is invalid"
            )
        return pieces

    def _encode(self, table: pa.Table) -> None:
        """Encode a table, or its halves if the file has begun and the table exceeds the memory. Raises DeviceError."""
        try:
            self._try(table)
        except DeviceMemoryError:
            if not self._rows or table.num_rows < 2 * _FEWEST_ROWS:
                raise
        else:
            return
        # Encode the halves outside the exception handler, because the exception may keep device memory alive.
        half = table.num_rows // 2
        self._encode(table.slice(0, half))
        self._encode(table.slice(half))

    def _try(self, table: pa.Table) -> None:
        if self._file is None:
            self._file = self._gpu.engine.open(self._layout.plan, self._output)
        before_bytes = self._output.written_bytes
        try:
            with closing(self._gpu.staging.parts(table)) as parts:
                self._file.write(parts)
        except DeviceMemoryError as error:
            # If the file contains a part of the row group, the row group cannot be written again. A failed attempt at
            # the first row group may have written the file's header, which belongs to no row group.
            if self._rows and self._output.written_bytes != before_bytes:
                raise DeviceError(f"out of memory after part of a row group was returned: {error}") from error
            raise
        self._check_output()
        self._rows += table.num_rows

    def _check_output(self) -> None:
        try:
            self._output.check()
        except EncodeError:
            raise
        except Exception as error:
            raise EncodeError(f"the GPU's output could not be stored: {type(error).__name__}: {error}") from error

    def _after(self, error: DeviceError) -> Encoder:
        """Return the CPU encoder that takes over; raises EncodeError if the file has begun."""
        is_memory = isinstance(error, DeviceMemoryError)
        if not is_memory:
            self._gpu.examine()
        if self._rows:
            raise EncodeError(
                f"the GPU could not encode the rows after {self._rows}: {error}; the file cannot continue on the CPU "
                "and is lost: retry; if this recurs, use smaller row groups or --encoder cpu"
            ) from error
        kind = ReasonKind.DEVICE_MEMORY if is_memory else ReasonKind.DEVICE_FAILED
        return self._move(Reason(kind, f"the GPU could not begin the file: {error}"))

    def _move(self, reason: Reason) -> Encoder:
        self._file = None
        self.reason = reason
        self._cpu = self._make_cpu()
        return self._cpu
