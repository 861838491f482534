# SPDX-License-Identifier: Apache-2.0
"""Model process's end of one worker's socket: never blocks, reads one request at a time, and keeps unsent bytes.

Back pressure: the next request stays in the socket while the current one is unanswered, or while the model process
holds as many bytes of requests as `Room` allows.
"""

import select
import socket
from typing import NamedTuple

import pyarrow as pa

from updraft_server.ipc.frames import after
from updraft_server.worker.model import messages

# Time limit for sending a goodbye, which a correct worker reads at once.
_LAST_WORDS_SECONDS = 5.0


class Request(NamedTuple):
    """Request that a worker has sent."""

    message: messages.Message
    payload: pa.Buffer


class ConnectionEndedError(Exception):
    """Raised when the worker has closed its end, or died."""


class Room:
    """Limit on the total bytes of all connections' requests. A request may be larger if no other request is held."""

    def __init__(self, bytes_: int) -> None:
        self._bytes = bytes_
        self._held = 0

    def has(self, count: int) -> bool:
        """Return whether `count` more bytes may be held now."""
        return not self._held or self._held + count <= self._bytes

    def take(self, count: int) -> None:
        """Count `count` more bytes as held."""
        self._held += count

    def give_back(self, count: int) -> None:
        """Release `count` bytes."""
        self._held -= count


class Connection:
    """Connection to one worker, for one exchange."""

    def __init__(self, sock: socket.socket, room: Room) -> None:
        sock.settimeout(0)
        self._socket = sock
        self._room = room
        self._held_bytes = 0
        self._header = bytearray()
        self._message: messages.Message | None = None
        self._payload: pa.Buffer = pa.py_buffer(b"")
        self._received = 0
        self._unsent: list[memoryview] = []
        self.is_answering = False
        """Whether a request has been read but not answered yet."""

    @property
    def descriptor(self) -> int:
        """Descriptor of the socket."""
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._socket.fileno() < 0

    @property
    def events(self) -> int:
        """Mask of the events to wait for. `poll` always reports hang-ups, even though the mask omits them."""
        reading = 0 if self.is_answering or self._waits_for_room() else select.POLLIN
        return reading | (select.POLLOUT if self._unsent else 0)

    def receive(self) -> Request | None:
        """Return a request, or None until all of it has arrived; raises ConnectionEndedError and MessageError."""
        if self._message is None:
            self._header += self._receive(messages.HEADER_BYTES - len(self._header))
            if len(self._header) < messages.HEADER_BYTES:
                return None
            self._message = messages.decode_header(self._header)
            if self._message.kind not in (messages.MessageKind.ROWS, messages.MessageKind.SUSPECT_ROWS):
                raise messages.MessageError(f"a worker sends no {self._message.kind.name}")
        if not self._held_bytes:
            if not self._room.has(_held_by(self._message)):
                return None
            self._begin_payload(self._message)
        view = memoryview(self._payload).cast("B")
        while self._received < self._message.payload_bytes:
            try:
                received = self._socket.recv_into(view[self._received :])
            except BlockingIOError:
                return None
            except OSError as error:
                raise ConnectionEndedError(str(error)) from None
            if not received:
                raise ConnectionEndedError("the worker has gone away")
            self._received += received
        request = Request(self._message, self._payload)
        self._header, self._message, self._received = bytearray(), None, 0
        self.is_answering = True
        return request

    def send(self, kind: messages.MessageKind, sequence: int = 0, payload: bytes | pa.Buffer = b"") -> None:
        """Send a message, and keep the bytes that the socket does not accept yet; raises ConnectionEndedError."""
        if kind in (messages.MessageKind.RESULT, messages.MessageKind.FAILED):
            self.is_answering = False
            self._give_back()
        view = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        self._unsent += [memoryview(messages.encode_header(kind, sequence, payload_bytes=view.nbytes)), view]
        self.flush()

    def flush(self) -> None:
        """Send as many kept bytes as the socket accepts now; raises ConnectionEndedError."""
        try:
            while self._unsent:
                self._unsent = after(self._unsent, self._socket.sendmsg(self._unsent))
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionEndedError(str(error)) from None

    def finish_sending(self) -> None:
        """Wait until the socket has accepted all messages; raises ConnectionEndedError."""
        self._socket.settimeout(_LAST_WORDS_SECONDS)
        self.flush()

    def close(self) -> None:
        """Close the socket and release the memory of the request."""
        self._give_back()
        self._socket.close()

    def _waits_for_room(self) -> bool:
        return self._message is not None and not self._held_bytes and not self._room.has(_held_by(self._message))

    def _begin_payload(self, message: messages.Message) -> None:
        held_bytes = _held_by(message)
        self._room.take(held_bytes)
        self._held_bytes = held_bytes
        try:
            self._payload = pa.allocate_buffer(message.payload_bytes)
        except MemoryError:
            # This worker's request is too large. Close only the connection of this worker.
            raise messages.MessageError(f"there is no memory for a payload of {message.payload_bytes} bytes") from None

    def _give_back(self) -> None:
        self._room.give_back(self._held_bytes)
        self._held_bytes = 0
        self._payload = pa.py_buffer(b"")

    def _receive(self, wanted: int) -> bytes:
        try:
            data = self._socket.recv(wanted)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ConnectionEndedError(str(error)) from None
        if not data:
            raise ConnectionEndedError("the worker has gone away")
        return data


def _held_by(message: messages.Message) -> int:
    # Include the header, so that a request with an empty payload holds bytes too: zero means that no request is held.
    return messages.HEADER_BYTES + message.payload_bytes
