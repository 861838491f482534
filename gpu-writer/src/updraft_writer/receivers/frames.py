# SPDX-License-Identifier: Apache-2.0
"""Frames between a writer's process and a receiver, over a stream socket.

Each frame consists of a kind, the number of a call (0 if the frame concerns no call), and a payload. The receiver
numbers calls.
"""

import asyncio
import enum
import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

_START_UP = "UPDRAFT_RECEIVER"
_HEADER = struct.Struct("<IBI")


class Kind(enum.IntEnum):
    """Kind of a frame, with its sender and its payload."""

    # Sent by a receiver.
    LISTENING = 1
    """The receiver serves clients; JSON of the addresses on which it listens."""
    CANNOT_LISTEN = 2
    """The receiver cannot start; the reason as text."""
    CALL = 3
    """A client has opened a call; JSON of `Opening`."""
    MESSAGE = 4
    """The client's next message."""
    LARGE_MESSAGE = 5
    """The client's next message has a body for the shared memory: the body's size, then the message without the body.
    """
    PLACED = 6
    """The receiver has put the body into the shared memory."""
    HALF_CLOSED = 7
    """The client has half-closed the call."""
    WRITTEN = 8
    """gRPC has accepted the last message for the client."""
    ENDED = 9
    """The call is over, and the receiver no longer writes into the shared memory for it."""
    OVERSIZED = 10
    """The client's next message has more than MOST_INLINE_BYTES besides its body; the number of these bytes."""
    # Sent by the writer's process.
    READ = 16
    """Send the client's next message."""
    PLACE = 17
    """Put the body of the large message at this offset in the shared memory."""
    ACCEPT = 18
    """Send the headers of the reply."""
    WRITE = 19
    """Send this message to the client."""
    FINISH = 20
    """End the call with this JSON of `Status`."""
    CLEAN = 21
    """Return freed memory to the system."""
    TAKEN = 22
    """The writer's process has received the CALL."""
    STOP = 23
    """Accept no more calls, end open calls after the seconds in this JSON, then exit."""


INLINE_BYTES = 64 << 10
"""Largest body that is sent in a frame. A larger body takes less time in shared memory."""
MOST_INLINE_BYTES = 16 << 20
"""Maximum size of a message besides its body. The headers of ten thousand columns take about 1 MiB."""
MOST_NEW_CALLS = 256
"""Maximum number of announced calls that the writer's process has not received yet. Further calls wait.
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts about a call that gRPC knows when the call begins."""

    method: str
    peer: str
    headers: list[tuple[str, str]]
    authentication: dict[str, list[str]]
    """Properties of the client's certificate, in Latin-1."""
    remaining_seconds: float | None

    def encoded(self) -> bytes:
        """Return the payload of a CALL."""
        return json.dumps([getattr(self, name) for name in self.__slots__]).encode()

    @classmethod
    def decoded(cls, payload: bytes) -> Self:
        """Return the facts in a payload."""
        method, peer, headers, authentication, remaining_seconds = json.loads(payload)
        return cls(method, peer, [(name, value) for name, value in headers], authentication, remaining_seconds)


@dataclass(frozen=True, slots=True)
class Status:
    """Status with which a call ends; an empty code is OK."""

    code: str = ""
    details: str = ""
    trailers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        """Return the payload of a FINISH."""
        return json.dumps([self.code, self.details, self.trailers]).encode()

    @classmethod
    def decoded(cls, payload: bytes) -> Self:
        """Return the status in a payload."""
        code, details, trailers = json.loads(payload)
        return cls(code, details, tuple((name, value) for name, value in trailers))


class StartUp(NamedTuple):
    """Start parameters that a receiver inherits from the writer's process."""

    settings: str
    """JSON of `ServeSettings`."""
    link_descriptor: int
    memory_descriptor: int

    @property
    def environment(self) -> dict[str, str]:
        """Environment variable that passes these parameters to a receiver."""
        return {_START_UP: json.dumps(self)}

    @classmethod
    def inherited(cls) -> Self:
        """Return the parameters that this process has inherited."""
        return cls(*json.loads(os.environ.pop(_START_UP)))


NUMBER = struct.Struct("<Q")
"""Size or offset in a payload."""


class Link(asyncio.Protocol):
    """One end of the socket between a writer's process and a receiver.

    The link calls `on_frame` with each frame, and `on_lost` when the other end is gone.
    """

    def __init__(self, on_frame: Callable[[Kind, int, bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._received = bytearray()
        self._transport: Any = None
        self._is_gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on each complete frame."""
        received = self._received
        received += data
        start = 0
        while len(received) - start >= _HEADER.size:
            size, kind, call = _HEADER.unpack_from(received, start)
            end = start + _HEADER.size + size
            if len(received) < end:
                break
            payload = bytes(received[start + _HEADER.size : end])
            start = end
            self._on_frame(Kind(kind), call, payload)
        del received[:start]

    def connection_lost(self, _error: Exception | None) -> None:
        """Report that the other end is gone."""
        self._is_gone.set()
        self._on_lost()

    def send(self, kind: Kind, call: int = 0, *payload: bytes | memoryview) -> None:
        """Send a frame without waiting. Does nothing if the connection is lost.

        Senders of large frames wait for an answer before they send the next frame, so the queue stays short.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines([_HEADER.pack(sum(map(len, payload)), kind, call), *payload])

    async def close(self) -> None:
        """Send the queued frames, then close the connection."""
        self._transport.close()
        await self._is_gone.wait()
