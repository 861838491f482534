# SPDX-License-Identifier: Apache-2.0
"""Formats of the bytes that PySpark's worker reads and writes, and the stream that it reads instead of a socket."""

import struct
from collections.abc import Iterable


class WorkerInput:
    """Stream of a preface and pieces. A read takes the next piece from an iterator, and never spans two pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._unread = b""
        self._position = 0

    def preface(self, data: bytes) -> None:
        """Set the bytes that the worker reads before anything else."""
        self._unread = data

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes, like a file; the result is empty at the end."""
        if size and self._position >= len(self._unread):
            self._unread, self._position = next(self._pieces, b""), 0
        start, self._position = self._position, self._position + size
        return self._unread[start : self._position]


INT = struct.Struct("!i")
LONG = struct.Struct("!q")


def with_length(data: bytes) -> bytes:
    """Return the length of `data`, followed by `data`."""
    return INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """Return a string as PySpark's worker reads it."""
    return with_length(value.encode())
