# SPDX-License-Identifier: Apache-2.0
"""Segment of one exchange, from the client's request for one to the end of the exchange."""

import asyncio

from updraft.service.exchange import event_message
from updraft.v1.exchange_pb2 import Admitted, ReplyMetadata
from updraft_server.front.relay.segment import LEAST_EXCHANGE_BYTES, Segment, Segments
from updraft_server.front.relay.transfer import Transfer
from updraft_server.ipc.frame_stream import BodyPlace, Frame
from updraft_server.ipc.frames import FrameHeader, FrameKind

_ADMITTED = event_message(ReplyMetadata(admitted=Admitted()))


class SegmentOffer:
    """Offer of a segment to a client. The front makes the segment once the exchange has proved to be large enough."""

    def __init__(self, segments: Segments, transfer: Transfer, *, is_wanted: bool) -> None:
        self._segments = segments
        self._transfer = transfer
        self._is_open = is_wanted and segments.directory is not None
        self._making: asyncio.Task[Segment | None] | None = None
        self._is_in_parts = False
        self.segment: Segment | None = None
        """Segment that `due` has returned; None before that, and if the exchange gets no segment."""

    @property
    def admission(self) -> bytes:
        """Message that reports to the client that its exchange has a worker, and names the directory for a segment."""
        if not self._is_open:
            return _ADMITTED
        return event_message(ReplyMetadata(admitted=Admitted(segment_directory=str(self._segments.directory))))

    def due(self) -> Segment | None:
        """Return the segment if it is ready and not announced to the client yet, else None. Never wait."""
        if not self._is_open:
            return None
        if self._making is None:
            if self._transfer.received_bytes + self._transfer.sent_bytes >= LEAST_EXCHANGE_BYTES:
                self._making = asyncio.create_task(self._segments.make())
        elif self._making.done():
            self._is_open = False
            self.segment = self._making.result()
            return self.segment
        return None

    def place(self, header: FrameHeader) -> BodyPlace | None:
        """Return a place in the segment for the body of a reply, or None; parts of a large batch get no place."""
        is_whole = header.kind is FrameKind.MESSAGE and header.header_bytes > 0 and not self._is_in_parts
        return self.segment.reserve(header.body_bytes) if is_whole and self.segment is not None else None

    def received(self, reply: Frame) -> None:
        """Record whether this reply of the worker is a part of a large batch."""
        if reply.data_header or reply.data_body:
            self._is_in_parts = not reply.data_header

    def close(self) -> None:
        """Close the segment, even if it is still being made."""
        if self._making is not None:
            self._making.add_done_callback(_close)


def _close(made: asyncio.Task[Segment | None]) -> None:
    if not made.cancelled() and (segment := made.result()) is not None:
        segment.close()
