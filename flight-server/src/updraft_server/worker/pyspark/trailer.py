# SPDX-License-Identifier: Apache-2.0
"""Trailer that PySpark's worker writes besides its results: timings, spills and accumulator updates, or a traceback."""

import dataclasses
import io
import struct
from collections.abc import Sequence

from pyspark.serializers import SpecialLengths, read_int, read_long

from updraft.errors import InternalError
from updraft.v1 import exchange_pb2

TIMINGS_BEFORE_4_2 = ("boot_milliseconds", "init_milliseconds", "finish_milliseconds")
TIMINGS = (*TIMINGS_BEFORE_4_2, "processing_milliseconds")
"""Times that PySpark's worker reports, as fields of `Trailer`."""


@dataclasses.dataclass(slots=True)
class Trailer:
    """Parsed trailer; times are epoch milliseconds."""

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
        """Return durations as Spark computes them, counted from the time when the worker received the command."""
        return exchange_pb2.Report(
            boot_milliseconds=self.boot_milliseconds - received_milliseconds,
            init_milliseconds=self.init_milliseconds - self.boot_milliseconds,
            total_milliseconds=self.finish_milliseconds - received_milliseconds,
            processing_milliseconds=self.processing_milliseconds,
            memory_spilled_bytes=self.memory_spilled_bytes,
            disk_spilled_bytes=self.disk_spilled_bytes,
            accumulator_updates=self.accumulator_updates,
        )


def parse_trailer(data: bytes, timings: Sequence[str]) -> Trailer:
    """Parse the trailer of a PySpark worker that reports these `timings`; raises InternalError for invalid bytes."""
    stream = io.BytesIO(data)
    trailer = Trailer()
    try:
        while stream.tell() < len(data):
            _parse_section(stream, trailer, timings)
    except (struct.error, EOFError, UnicodeDecodeError) as error:
        raise InternalError(f"pyspark's worker wrote an incomplete trailer: {error}") from None
    return trailer


def _parse_section(stream: io.BytesIO, trailer: Trailer, timings: Sequence[str]) -> None:
    match read_int(stream):
        case SpecialLengths.TIMING_DATA:
            for timing in timings:
                setattr(trailer, timing, read_long(stream))
            trailer.memory_spilled_bytes = read_long(stream)
            trailer.disk_spilled_bytes = read_long(stream)
        case SpecialLengths.END_OF_DATA_SECTION:
            # If the function left input unread, this mark comes a second time, in place of END_OF_STREAM.
            if not trailer.complete:
                trailer.accumulator_updates = [_read_bytes(stream) for _ in range(read_int(stream))]
                trailer.complete = True
        case SpecialLengths.PYTHON_EXCEPTION_THROWN:
            trailer.traceback = _read_bytes(stream).decode()
        case SpecialLengths.START_ARROW_STREAM | SpecialLengths.END_OF_STREAM:
            pass
        case mark:
            raise InternalError(f"pyspark's worker wrote {mark}, which this pool does not know")


def _read_bytes(stream: io.BytesIO) -> bytes:
    length = read_int(stream)
    data = stream.read(length)
    if len(data) != length:
        raise InternalError(f"pyspark's worker announced {length} bytes and wrote {len(data)}")
    return data
