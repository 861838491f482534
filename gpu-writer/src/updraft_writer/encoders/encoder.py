# SPDX-License-Identifier: Apache-2.0
"""Interface of encoders: row groups in, pieces of a file out. An encoder does no I/O; one thread uses it at a time."""

import io
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from updraft.v1.write_pb2 import ColumnStatistics
from updraft_writer.pieces import Block, Blocks, Piece
from updraft_writer.reason import Reason


@dataclass(frozen=True, slots=True)
class Footer:
    """Facts from the footer of a finished file; `row_groups` is 0 if the encoder does not report row groups."""

    row_groups: int
    rows: int
    dictionary_columns: tuple[str, ...] = ()
    columns: tuple[ColumnStatistics, ...] = ()


class EncodedBytes(io.RawIOBase):
    """File object that an encoder library writes to. It keeps all bytes until `take`, even after `close`."""

    mode = "wb"

    def __init__(self, blocks: Blocks | None = None) -> None:
        super().__init__()
        self.written_bytes = 0
        self._blocks = blocks or Blocks()
        self._pieces: list[Piece] = []
        self._block: Block | None = None

    def write(self, data: Any) -> int:
        """Keep a copy of `data`, because the library may reuse the memory of `data`."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        self.written_bytes += size
        while rest:
            if self._block is None:
                self._block = self._blocks.take()
            rest = rest[self._block.fill(rest) :]
            if self._block.is_full:
                self._end_block(self._block)
        return size

    def take(self) -> list[Piece]:
        """Return the bytes written since the last call, in pieces of 1 MiB and a shorter last one."""
        if self._block is not None:
            self._end_block(self._block)
        taken, self._pieces = self._pieces, []
        return taken

    def _end_block(self, block: Block) -> None:
        self._pieces += block.pieces()
        self._block = None

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self.written_bytes

    def writable(self) -> bool:
        """Return true: the file object is always writable."""
        return True


def with_end(pieces: list[Piece], least_bytes: int) -> tuple[list[Piece], bytes]:
    """Join the last pieces into an end of at least `least_bytes`; return the pieces before the end, and the end."""
    kept = list(pieces)
    end: list[Piece] = []
    while kept and sum(map(len, end)) < least_bytes:
        end.insert(0, kept.pop())
    return kept, b"".join(end)


class Encoder(Protocol):
    """Encoder of one file. It must not be used after an error. `reason` explains the choice of this encoder."""

    reason: Reason

    @property
    def name(self) -> str:
        """Name of the encoder in receipts."""

    @property
    def on_gpu(self) -> bool:
        """Whether the next row group has to wait for a turn on the GPU."""

    @property
    def retained_bytes(self) -> int:
        """Approximate upper bound of the bytes that the encoder retains between row groups."""

    def write(self, table: pa.Table) -> list[Piece]:
        """Encode a row group and return the pieces that are ready. Raises EncodeError."""

    def close(self) -> list[Piece]:
        """Write the footer and return the last pieces. Raises EncodeError."""

    @property
    def footer(self) -> Footer:
        """Facts from the footer, once the file is closed."""
