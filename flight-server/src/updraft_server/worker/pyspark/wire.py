# SPDX-License-Identifier: Apache-2.0
"""How PySpark's worker writes and reads numbers and texts: big-endian, a length before bytes."""

import struct

INT = struct.Struct("!i")
LONG = struct.Struct("!q")


def with_length(data: bytes) -> bytes:
    """A length and that many bytes."""
    return INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """A string as PySpark's worker reads it."""
    return with_length(value.encode())
