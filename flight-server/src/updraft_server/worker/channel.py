# SPDX-License-Identifier: Apache-2.0
"""Worker's end of the socketpair to the front: sends and receives whole frames with blocking calls, without threads.

The channel receives header and body straight into one buffer. The buffer is laid out as an encapsulated IPC message
with the body on a 64-byte boundary, so that Arrow reads the message without a copy.
"""

import os
import select
import socket
import struct
import threading
from typing import NamedTuple, NoReturn

import pyarrow as pa

from updraft_server.ipc.frames import HEADER_BYTES, Buffer, FrameHeader, FrameKind, after, decode_header, encode

EXIT_FRONT_GONE = 75

_IPC_PREFIX = struct.Struct("<Ii")
_IPC_CONTINUATION = 0xFFFFFFFF
_IPC_ALIGNMENT_BYTES = 8
_BODY_ALIGNMENT_BYTES = 64


class ReceivedFrame(NamedTuple):
    """Frame from the front. `message` is the encapsulated IPC message of data_header and data_body."""

    kind: FrameKind
    app_metadata: bytes
    message: pa.Buffer
    header: FrameHeader

    @property
    def has_data(self) -> bool:
        """Whether the message carries Arrow data, not only app_metadata."""
        return self.header.header_bytes > 0 or self.header.body_bytes > 0

    @property
    def data_header(self) -> pa.Buffer:
        """Arrow's header alone, without padding."""
        return self.message.slice(_IPC_PREFIX.size, self.header.header_bytes)

    @property
    def data_body(self) -> pa.Buffer:
        """Arrow's body alone."""
        return self.message.slice(self.message.size - self.header.body_bytes)


class Channel:
    """Blocking stream socket to the front, for whole frames. If the front closes its end, the process exits."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # Several threads may send. The lock keeps each frame whole.
        self._sending = threading.Lock()
        self._header = bytearray(HEADER_BYTES)
        self._header_view = memoryview(self._header)

    @property
    def descriptor(self) -> int:
        """Descriptor of the socket."""
        return self._socket.fileno()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a frame begins to arrive. Return False if no frame does within `seconds`; None means no limit."""
        arrivals = select.poll()
        arrivals.register(self._socket, select.POLLIN)
        return bool(arrivals.poll(None if seconds is None else seconds * 1000))

    def receive_header(self) -> FrameHeader:
        """Wait for the next frame and return its header. Call `receive_fields` next, for the frame's fields."""
        self._fill([self._header_view])
        return decode_header(self._header_view)

    def receive_fields(self, header: FrameHeader) -> ReceivedFrame:
        """Receive the fields that belong to `header`."""
        metadata = bytearray(header.metadata_bytes)
        padded = -(-header.header_bytes // _IPC_ALIGNMENT_BYTES) * _IPC_ALIGNMENT_BYTES
        body_start = -(-(_IPC_PREFIX.size + padded) // _BODY_ALIGNMENT_BYTES) * _BODY_ALIGNMENT_BYTES
        header_start = body_start - padded
        message = pa.allocate_buffer(body_start + header.body_bytes)
        # Arrow's buffers have signed bytes, and Python does not assign unsigned bytes to a memoryview of signed bytes.
        view = memoryview(message).cast("B")
        _IPC_PREFIX.pack_into(view, header_start - _IPC_PREFIX.size, _IPC_CONTINUATION, padded)
        pieces = [memoryview(metadata)] if metadata else []
        if padded == header.header_bytes:
            pieces.append(view[header_start:])
        else:
            header_end = header_start + header.header_bytes
            view[header_end:body_start] = bytes(body_start - header_end)
            pieces += [view[header_start:header_end], view[body_start:]]
        self._fill(pieces)
        return ReceivedFrame(header.kind, bytes(metadata), message.slice(header_start - _IPC_PREFIX.size), header)

    def send(
        self, kind: FrameKind, app_metadata: bytes = b"", data_header: Buffer = b"", data_body: Buffer = b""
    ) -> None:
        """Send one frame; blocks while the front's socket buffer is full."""
        pieces = [memoryview(piece) for piece in encode(kind, app_metadata, data_header, data_body)]
        try:
            with self._sending:
                while pieces:
                    pieces = after(pieces, self._socket.sendmsg(pieces))
        except ConnectionError:
            self.leave()

    def discard_until_closed(self) -> None:
        """Discard all input until the front closes the channel. After a failure, the front may still be sending."""
        scratch = bytearray(1 << 16)
        try:
            while self._socket.recv_into(scratch):
                pass
        except OSError:
            return

    def leave(self) -> NoReturn:
        """Exit at once, because only the front assigns work. User code must not notice that the front is gone."""
        os._exit(EXIT_FRONT_GONE)

    def _fill(self, pieces: list[memoryview]) -> None:
        expected = sum(piece.nbytes for piece in pieces)
        if not expected:
            return
        try:
            received = self._socket.recvmsg_into(pieces, 0, socket.MSG_WAITALL)[0]
            while received < expected:
                rest = after(pieces, received)
                more = self._socket.recvmsg_into(rest, 0, socket.MSG_WAITALL)[0]
                if not more:
                    self.leave()
                received += more
        except ConnectionError:
            self.leave()
