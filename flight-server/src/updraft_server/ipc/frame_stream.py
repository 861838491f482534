# SPDX-License-Identifier: Apache-2.0
"""Frames that the front's event loop sends and receives over a worker's non-blocking socket.

This is the hot path of a pool. A frame needs no task and no queue, and needs a future only if the socket is not ready.
`updraft_server.ipc.frames` defines the bytes, and `updraft_server.front.relay` passes the frames on.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from updraft_server.ipc.frames import HEADER_BYTES, Buffer, FrameHeader, FrameKind, after, decode_header, encode_header

# Large enough to read many small frames in one system call, and small enough to read little of a large frame.
_READ_AHEAD_BYTES = 64 * 1024

_EMPTY = memoryview(b"")


class PeerClosedError(Exception):
    """Raised when the other end of the socket is closed."""


class LostMemoryError(Exception):
    """Raised when the mapped memory of a body cannot be read or written, because its file was truncated."""


class BodyPlace(NamedTuple):
    """Place for the body of a frame in a mapped file."""

    memory: memoryview
    """Memory of the body's size."""
    position: int
    """Position in the ring that the place belongs to."""


class Frame(NamedTuple):
    """Received frame; the views are valid until the next `receive`."""

    kind: FrameKind
    app_metadata: memoryview
    data_header: memoryview
    data_body: memoryview
    place: BodyPlace | None = None
    """Place that holds the body; `data_body` is then empty. None if `data_body` holds the body."""


class FrameSender:
    """Sender of frames; if the socket is full, the caller waits."""

    def __init__(self, peer: socket.socket) -> None:
        self.is_held_back = False
        """Whether a frame waits for room in the socket."""
        self._socket = peer
        self._loop = asyncio.get_running_loop()

    async def send(
        self, kind: FrameKind, app_metadata: Buffer = b"", data_header: Buffer = b"", data_body: Buffer = b""
    ) -> None:
        """Send one frame whole; raises PeerClosedError or LostMemoryError. A cancelled send ruins the socket."""
        header = encode_header(kind, len(app_metadata), len(data_header), len(data_body))
        pieces: Sequence[Buffer] = [header, app_metadata, data_header, data_body]
        remaining = len(header) + len(app_metadata) + len(data_header) + len(data_body)
        while True:
            try:
                sent = self._socket.sendmsg(pieces)
            except BlockingIOError:
                self.is_held_back = True
                await _ready(self._socket, self._loop.add_writer, self._loop.remove_writer)
                self.is_held_back = False
                continue
            except OSError as error:
                raise _failure(error) from error
            remaining -= sent
            if remaining == 0:
                return
            pieces = after(pieces, sent)


class FrameReceiver:
    """Receiver of frames into one buffer, which grows to the largest frame of the exchange."""

    def __init__(self, peer: socket.socket, *, max_payload_bytes: int) -> None:
        self.reserve: Callable[[FrameHeader], BodyPlace | None] | None = None
        """Function that returns a place for the body of a frame, or None to receive the body into the buffer."""
        self._socket = peer
        self._loop = asyncio.get_running_loop()
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray(_READ_AHEAD_BYTES)
        self._start = 0
        self._end = 0
        self._peer_gone = False
        self._waiter: asyncio.Future[None] | None = None

    def peer_is_gone(self) -> None:
        """Record that the peer has died: `receive` still returns the frames that it sent, then raises PeerClosedError.

        The socket alone may never show the end, because a process that the peer started may still hold the socket open.
        """
        self._peer_gone = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            PeerClosedError: The peer has closed its end or has died.
            FrameError: The bytes are not a frame.
            FrameTooLargeError: The frame exceeds the limit.
            LostMemoryError: The place for the body was truncated.
        """
        if self._start == self._end:
            self._start = self._end = 0
        # If `reserve` may provide another place for the body, read only the header.
        await self._have(HEADER_BYTES, _READ_AHEAD_BYTES if self.reserve is None else HEADER_BYTES)
        header = decode_header(memoryview(self._buffer)[self._start : self._start + HEADER_BYTES])
        if header.payload_bytes > self._max_payload_bytes:
            raise FrameTooLargeError(header.payload_bytes)
        whole = HEADER_BYTES + header.payload_bytes
        # Before `reserve` was set, reads may have put a part of this body into the buffer. Then read the rest of the
        # body into the buffer too.
        if self.reserve is not None and self._end - self._start <= whole - header.body_bytes:
            place = self.reserve(header)
            if place is not None:
                return await self._receive_into(place, header)
        # Read exactly this frame, because bytes of the next frame would have to be moved later.
        await self._have(whole, whole)
        position = self._start + HEADER_BYTES
        self._start += whole
        return self._frame(header, position)

    async def _receive_into(self, place: BodyPlace, header: FrameHeader) -> Frame:
        """Receive a frame's body into `place`. Only system calls may access it, because its file may be truncated."""
        fields = HEADER_BYTES + header.metadata_bytes + header.header_bytes
        await self._have(fields, fields)
        position = self._start + HEADER_BYTES
        self._start += fields
        done = 0
        while done < header.body_bytes:
            done += await self._receive_some(place.memory[done:])
        return self._frame(header._replace(body_bytes=0), position)._replace(place=place)

    def _frame(self, header: FrameHeader, position: int) -> Frame:
        view = memoryview(self._buffer)
        metadata_end = position + header.metadata_bytes
        header_end = metadata_end + header.header_bytes
        body_end = header_end + header.body_bytes
        return Frame(
            header.kind,
            view[position:metadata_end],
            view[metadata_end:header_end] if header.header_bytes else _EMPTY,
            view[header_end:body_end] if header.body_bytes else _EMPTY,
        )

    async def _have(self, needed: int, wanted: int) -> None:
        """Return when at least `needed` bytes are buffered from `_start` on; reads at most `wanted`."""
        self._make_room(wanted)
        while self._end - self._start < needed:
            self._end += await self._receive_some(memoryview(self._buffer)[self._end : self._start + wanted])

    async def _receive_some(self, room: memoryview) -> int:
        while True:
            try:
                received = self._socket.recv_into(room)
            except BlockingIOError:
                if self._peer_gone:
                    raise PeerClosedError("the worker died") from None
                await self._readable()
                continue
            except OSError as error:
                raise _failure(error) from error
            if received == 0:
                raise PeerClosedError("the worker closed its socket")
            return received

    def _make_room(self, wanted: int) -> None:
        if self._start + wanted <= len(self._buffer):
            return
        unread = self._buffer[self._start : self._end]
        if wanted > len(self._buffer):
            self._buffer = bytearray(_rounded_up(wanted))
        self._buffer[: len(unread)] = unread
        self._start, self._end = 0, len(unread)

    async def _readable(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await _ready(self._socket, self._loop.add_reader, self._loop.remove_reader, self._waiter)
        finally:
            self._waiter = None


class FrameTooLargeError(Exception):
    """Raised when a worker sends a frame that exceeds the limit of a message."""

    def __init__(self, payload_bytes: int) -> None:
        super().__init__(payload_bytes)
        self.payload_bytes = payload_bytes


def _failure(error: OSError) -> Exception:
    kind = LostMemoryError if error.errno == errno.EFAULT else PeerClosedError
    return kind(str(error))


async def _ready(
    peer: socket.socket,
    add: Callable[..., object],
    remove: Callable[[int], object],
    waiter: asyncio.Future[None] | None = None,
) -> None:
    ready = waiter or asyncio.get_running_loop().create_future()
    descriptor = peer.fileno()
    add(descriptor, _wake, ready)
    try:
        await ready
    finally:
        remove(descriptor)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _rounded_up(size_bytes: int) -> int:
    """Return the next power of two, so that slowly growing frames do not reallocate each time."""
    return 1 << (size_bytes - 1).bit_length()
