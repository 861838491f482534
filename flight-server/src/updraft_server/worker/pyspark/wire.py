# SPDX-License-Identifier: Apache-2.0
"""The numbers of PySpark's worker protocol: big-endian integers, lengths before bytes, negative lengths as marks."""

import struct

INT = struct.Struct("!i")
LONG = struct.Struct("!q")

END_OF_DATA_SECTION = -1
PYTHON_EXCEPTION_THROWN = -2
TIMING_DATA = -3
END_OF_STREAM = -4
START_ARROW_STREAM = -6
START_OF_INIT_MESSAGE = -8


def with_length(data: bytes) -> bytes:
    """A length and that many bytes."""
    return INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """A string as PySpark's worker reads it."""
    return with_length(value.encode())
