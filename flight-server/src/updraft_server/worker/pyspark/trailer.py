# SPDX-License-Identifier: Apache-2.0
"""What PySpark's worker writes beside its results: timings, spills, accumulator updates, or a traceback."""

import dataclasses
import struct
from collections.abc import Sequence

from updraft.v1 import exchange_pb2
from updraft_server.worker.pyspark.wire import (
    END_OF_DATA_SECTION,
    END_OF_STREAM,
    INT,
    LONG,
    PYTHON_EXCEPTION_THROWN,
    START_ARROW_STREAM,
    TIMING_DATA,
)

TIMINGS_BEFORE_4_2 = ("boot_milliseconds", "init_milliseconds", "finish_milliseconds")
TIMINGS = (*TIMINGS_BEFORE_4_2, "processing_milliseconds")
"""The times that PySpark's worker reports, as fields of `Trailer`."""


@dataclasses.dataclass(slots=True)
class Trailer:
    """The parsed trailer; times are epoch milliseconds."""

    boot_milliseconds: int = 0
    init_milliseconds: int = 0
    finish_milliseconds: int = 0
    processing_milliseconds: int = 0
    memory_spilled_bytes: int = 0
    disk_spilled_bytes: int = 0
    accumulator_updates: list[bytes] = dataclasses.field(default_factory=list)
    traceback: str | None = None
    complete: bool = False

    def to_report(self, received_milliseconds: int) -> exchange_pb2.Report:
        """Durations as Spark computes them, from the moment when the command was received."""
        return exchange_pb2.Report(
            boot_milliseconds=self.boot_milliseconds - received_milliseconds,
            init_milliseconds=self.init_milliseconds - self.boot_milliseconds,
            total_milliseconds=self.finish_milliseconds - received_milliseconds,
            processing_milliseconds=self.processing_milliseconds,
            memory_spilled_bytes=self.memory_spilled_bytes,
            disk_spilled_bytes=self.disk_spilled_bytes,
            accumulator_updates=self.accumulator_updates,
        )


class TrailerError(Exception):
    """Raised when PySpark's worker wrote what this pool does not know."""


def parse_trailer(data: bytes, timings: Sequence[str]) -> Trailer:
    """Raises TrailerError on bytes that are no trailer of a PySpark's worker that reports these `timings`."""
    reader = _Reader(data)
    trailer = Trailer()
    try:
        while reader.rest:
            _parse_section(reader, trailer, timings)
    except (struct.error, UnicodeDecodeError) as error:
        raise TrailerError(f"pyspark's worker wrote an incomplete trailer: {error}") from None
    return trailer


def _parse_section(reader: "_Reader", trailer: Trailer, timings: Sequence[str]) -> None:
    mark = reader.read_int()
    if mark == TIMING_DATA:
        for timing in timings:
            setattr(trailer, timing, reader.read_long())
        trailer.memory_spilled_bytes = reader.read_long()
        trailer.disk_spilled_bytes = reader.read_long()
    elif mark == END_OF_DATA_SECTION:
        # A second one stands where END_OF_STREAM would: the function left input unread.
        if not trailer.complete:
            trailer.accumulator_updates = [reader.read_bytes() for _ in range(reader.read_int())]
            trailer.complete = True
    elif mark == PYTHON_EXCEPTION_THROWN:
        trailer.traceback = reader.read_bytes().decode()
    elif mark not in (START_ARROW_STREAM, END_OF_STREAM):
        raise TrailerError(f"pyspark's worker wrote {mark}, which this pool does not know")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self._position

    def read_int(self) -> int:
        return self._number(INT)

    def read_long(self) -> int:
        return self._number(LONG)

    def read_bytes(self) -> bytes:
        length = self._number(INT)
        start = self._position
        if length < 0 or length > self.rest:
            raise TrailerError(f"pyspark's worker announced {length} bytes and wrote {self.rest}")
        self._position += length
        return self._data[start : start + length]

    def _number(self, layout: struct.Struct) -> int:
        value = layout.unpack_from(self._data, self._position)[0]
        self._position += layout.size
        return int(value)
