# SPDX-License-Identifier: Apache-2.0
"""Parts of batches that are larger than a message, and their assembly into memory that Arrow reads without a copy."""

import struct
from collections.abc import Iterator

import pyarrow as pa

from updraft.errors import LimitError, ProtocolError
from updraft.v1.exchange_pb2 import BatchPart

PART_BYTES = 16 << 20
"""Size of a part: large enough for a low cost per byte, small enough that other calls on the connection get a turn."""

# Address space before the body for Arrow's header, which arrives last. Pages that are never written take no memory.
_HEADER_ROOM_BYTES = 4 << 20
_IPC_PREFIX = struct.Struct("<Ii")
_IPC_CONTINUATION = 0xFFFFFFFF
_IPC_ALIGNMENT_BYTES = 8


def parts_before_last(body: memoryview, part_bytes: int) -> Iterator[tuple[BatchPart, memoryview]]:
    """Yield all parts of a body except the last; yield nothing if the body fits in one part."""
    for offset in range(0, body.nbytes - part_bytes, part_bytes):
        yield BatchPart(body_bytes=body.nbytes, offset=offset), body[offset : offset + part_bytes]


def last_part(body: memoryview, part_bytes: int) -> memoryview:
    """Return the last part, which the sender sends together with the batch's number and header."""
    return body[max(0, -(-body.nbytes // part_bytes) - 1) * part_bytes :]


class BatchParts:
    """Partly received body of one batch."""

    def __init__(self, sequence: int, first: BatchPart, *, limit_bytes: int, setting: str) -> None:
        """Allocate memory for the whole body; raise a LimitError that names `setting` if the body exceeds the limit."""
        self._sequence = sequence
        self.body_bytes = first.body_bytes
        """Bytes of the whole body."""
        self.come_bytes = 0
        """Bytes received so far."""
        check_batch_size(sequence, self.body_bytes, limit_bytes=limit_bytes, setting=setting)
        try:
            self._buffer = pa.allocate_buffer(_HEADER_ROOM_BYTES + self.body_bytes)
        except MemoryError:
            raise LimitError(
                f"there is no memory for the {self.body_bytes} bytes of batch {sequence}: send smaller batches"
            ) from None
        # Arrow buffers have signed bytes, so cast the view: Python does not copy between memoryviews of different
        # formats.
        self._view = memoryview(self._buffer).cast("B")

    def add(self, part: BatchPart, data: memoryview) -> None:
        """Add one part; raise ProtocolError if it is not the next part."""
        if part.body_bytes != self.body_bytes or part.offset != self.come_bytes:
            raise ProtocolError(
                f"a part at {part.offset} of {part.body_bytes} bytes came for batch {self._sequence}, where one at "
                f"{self.come_bytes} of {self.body_bytes} bytes was expected"
            )
        if not data.nbytes:
            raise ProtocolError(f"a part of batch {self._sequence} has no data")
        self._append(data)

    def completed(self, data_header: memoryview, last: memoryview) -> pa.Buffer:
        """Add the last part and the header; return the encapsulated IPC message.

        Raises:
            ProtocolError: The parts contain more or fewer bytes than announced.
            LimitError: The header is too large.
        """
        self._append(last)
        if self.come_bytes != self.body_bytes:
            raise ProtocolError(
                f"the parts of batch {self._sequence} have {self.come_bytes} bytes together, {self.body_bytes} were "
                "announced"
            )
        padded = -(-data_header.nbytes // _IPC_ALIGNMENT_BYTES) * _IPC_ALIGNMENT_BYTES
        start = _HEADER_ROOM_BYTES - padded - _IPC_PREFIX.size
        if start < 0:
            raise LimitError(
                f"batch {self._sequence} has {data_header.nbytes} bytes of Arrow metadata: send fewer columns"
            )
        _IPC_PREFIX.pack_into(self._view, start, _IPC_CONTINUATION, padded)
        self._view[start + _IPC_PREFIX.size : _HEADER_ROOM_BYTES] = bytes(data_header).ljust(padded, b"\0")
        return self._buffer.slice(start)

    def _append(self, data: memoryview) -> None:
        end = self.come_bytes + data.nbytes
        if end > self.body_bytes:
            raise ProtocolError(
                f"the parts of batch {self._sequence} have {end} bytes or more, {self.body_bytes} were announced"
            )
        # Arrow copies without the GIL, so other threads keep running.
        place = self._view[_HEADER_ROOM_BYTES + self.come_bytes : _HEADER_ROOM_BYTES + end]
        pa.FixedSizeBufferWriter(pa.py_buffer(place)).write(data.cast("B"))
        self.come_bytes = end


def check_batch_size(sequence: int, body_bytes: int, *, limit_bytes: int, setting: str) -> None:
    """Raise a LimitError that names `setting` if a batch is larger than a service accepts."""
    if body_bytes > limit_bytes:
        raise LimitError(
            f"batch {sequence} has {body_bytes} bytes, the limit is {limit_bytes}: send smaller batches, or raise "
            f"{setting}"
        )
