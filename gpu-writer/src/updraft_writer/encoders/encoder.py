# SPDX-License-Identifier: Apache-2.0
"""What every encoder is: row groups in, pieces of a file out. It does no I/O and runs on one thread at a time."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from updraft_writer.reason import Reason

# Pieces are large enough that a storage sees few writes and small enough to be let go one by one.
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of a finished file says; `row_groups` is 0 where the encoder does not tell them."""

    row_groups: int
    rows: int
    dictionary_columns: tuple[str, ...] = ()


class EncodedBytes:
    """The file object that an encoder library writes to: keeps the bytes until they are taken."""

    closed = False
    mode = "wb"

    def __init__(self) -> None:
        self.written_bytes = 0
        self._pieces: list[bytes] = []
        self._joining: list[bytes] = []
        self._joining_bytes = 0

    def write(self, data: bytes) -> int:
        """Keep `data`, which the library may reuse afterwards."""
        self._joining.append(bytes(data))
        self.written_bytes += len(data)
        self._joining_bytes += len(data)
        # Joined while the processor's caches still have them, and their memory is the next ones'.
        if self._joining_bytes >= _PIECE_BYTES:
            self._join()
        return len(data)

    def take(self) -> list[bytes]:
        """What was written since the last time, in pieces of about a mebibyte or more."""
        if self._joining:
            self._join()
        taken, self._pieces = self._pieces, []
        return taken

    def _join(self) -> None:
        self._pieces.append(self._joining[0] if len(self._joining) == 1 else b"".join(self._joining))
        self._joining.clear()
        self._joining_bytes = 0

    def tell(self) -> int:
        """The offset of the next byte."""
        return self.written_bytes

    def flush(self) -> None:
        """Nothing is behind this file."""

    def close(self) -> None:
        """What was written can still be taken."""


def with_end(pieces: list[bytes], least_bytes: int) -> list[bytes]:
    """The pieces with their last ones joined, so that the last has at least so many bytes."""
    kept = list(pieces)
    end: list[bytes] = []
    while kept and sum(map(len, end)) < least_bytes:
        end.insert(0, kept.pop())
    return [*kept, b"".join(end)]


class Encoder(Protocol):
    """One file's encoder; after an error it is thrown away. `reason` says why it is this one."""

    reason: Reason

    @property
    def name(self) -> str:
        """The encoder, as receipts name it."""

    @property
    def on_gpu(self) -> bool:
        """Whether the next row group takes a GPU's memory."""

    @property
    def retained_bytes(self) -> int:
        """What the encoder holds between row groups, at most about."""

    def write(self, table: pa.Table) -> list[bytes]:
        """Encode a row group; returns the bytes that are ready. Raises EncodeError."""

    def close(self) -> list[bytes]:
        """Write the footer; returns the last bytes. Raises EncodeError."""

    @property
    def footer(self) -> Footer:
        """What the footer says, once closed."""
