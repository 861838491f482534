# SPDX-License-Identifier: Apache-2.0
"""Encoding of numbers and texts for PySpark's worker: big-endian, with a length before bytes."""

import struct

INT = struct.Struct("!i")
LONG = struct.Struct("!q")


def with_length(data: bytes) -> bytes:
    """Return a length and that many bytes."""
    return INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """Return a string as PySpark's worker reads it."""
    return with_length(value.encode())
