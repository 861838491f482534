# SPDX-License-Identifier: Apache-2.0
"""Interface of encoders: row groups in, pieces of a file out. An encoder does no I/O; one thread uses it at a time."""

import io
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from updraft.v1.write_pb2 import ColumnStatistics
from updraft_writer.reason import Reason

# Size of a piece: large enough for few writes to the storage, small enough to free memory piece by piece.
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Footer:
    """Facts from the footer of a finished file; `row_groups` is 0 if the encoder does not report them."""

    row_groups: int
    rows: int
    dictionary_columns: tuple[str, ...] = ()
    columns: tuple[ColumnStatistics, ...] = ()


class EncodedBytes(io.RawIOBase):
    """File object that an encoder library writes to. It keeps the bytes until `take` returns them, even once closed."""

    mode = "wb"

    def __init__(self) -> None:
        super().__init__()
        self.written_bytes = 0
        self._pieces: list[bytes] = []
        self._joining: list[bytes] = []
        self._joining_bytes = 0

    def write(self, data: Any) -> int:
        """Keep a copy of `data`, which the library may reuse afterwards."""
        self._joining.append(bytes(data))
        self.written_bytes += len(data)
        self._joining_bytes += len(data)
        # Join the bytes while they are in the processor's caches. The memory of the joined bytes is reused for the next
        # bytes.
        if self._joining_bytes >= _PIECE_BYTES:
            self._join()
        return len(data)

    def take(self) -> list[bytes]:
        """Return the bytes written since the last call, in pieces of about 1 MiB or more."""
        if self._joining:
            self._join()
        taken, self._pieces = self._pieces, []
        return taken

    def _join(self) -> None:
        self._pieces.append(self._joining[0] if len(self._joining) == 1 else b"".join(self._joining))
        self._joining.clear()
        self._joining_bytes = 0

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self.written_bytes

    def writable(self) -> bool:
        """Return true: the file object is always writable."""
        return True


def with_end(pieces: list[bytes], least_bytes: int) -> list[bytes]:
    """Join the last pieces until the last one has at least `least_bytes`; return all pieces."""
    kept = list(pieces)
    end: list[bytes] = []
    while kept and sum(map(len, end)) < least_bytes:
        end.insert(0, kept.pop())
    return [*kept, b"".join(end)]


class Encoder(Protocol):
    """Encoder of one file. It must not be used after an error. `reason` says why it was chosen."""

    reason: Reason

    @property
    def name(self) -> str:
        """Name of the encoder in receipts."""

    @property
    def on_gpu(self) -> bool:
        """Whether the next row group needs a turn on the GPU."""

    @property
    def retained_bytes(self) -> int:
        """Approximate upper bound of the bytes that the encoder retains between row groups."""

    def write(self, table: pa.Table) -> list[bytes]:
        """Encode a row group and return the pieces that are ready. Raises EncodeError."""

    def close(self) -> list[bytes]:
        """Write the footer and return the last pieces. Raises EncodeError."""

    @property
    def footer(self) -> Footer:
        """Facts from the footer, once the file is closed."""
