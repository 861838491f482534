# SPDX-License-Identifier: Apache-2.0
"""Frames that a pool's front and its workers exchange over a socketpair.

A frame is a fixed header and the three fields of a FlightData. The front (`updraft_server.front.relay`) relays frames
without parsing the fields; a worker (`updraft_server.worker`) reads and writes frames with blocking calls. This module
is sans-IO: it uses neither sockets nor Arrow. The format is private, because both ends come from the same installation.
"""

import enum
import struct
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEADER = struct.Struct("<BIIQ")
HEADER_BYTES = _HEADER.size

# Largest size of a field, whatever the pool's limits are. A corrupt header must not cause a huge allocation.
MAX_METADATA_BYTES = 64 * 1024 * 1024
MAX_BODY_BYTES = 2**40


class FrameKind(enum.IntEnum):
    """Kind of a frame; the comment names the sender."""

    READY = 1  # worker: it is set up and waits for a COMMAND. The pool reads this frame before the first exchange.
    COMMAND = 2  # front: app_metadata = Assignment, data_header = the IPC schema, data_body = the payload.
    BATCH = 3  # front: the three fields of a FlightData as received.
    END = 4  # front: the client has half-closed.
    MESSAGE = 5  # worker: the three fields of a FlightData to send.
    DONE = 6  # worker: a clean finish; the worker waits for the next COMMAND.
    RETIRED = (
        7  # worker: a clean finish, after which the worker must be replaced (it left input unread, or is worn out).
    )
    FAILED = 8  # worker: app_metadata = updraft.v1.Error; the worker must be replaced.
    LOADING = 9  # worker: app_metadata = Load; the function is being loaded, in the worker or in a model process.
    LOADED = 10  # worker: the load has ended, successfully or not.
    CRASHED = 11  # worker: like FAILED; rows of this exchange ran alone in a model process and killed that process.


class FrameHeader(NamedTuple):
    """Parsed header: the kind and the lengths of the fields that follow."""

    kind: FrameKind
    metadata_bytes: int
    header_bytes: int
    body_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Length of everything that follows the header."""
        return self.metadata_bytes + self.header_bytes + self.body_bytes


class FrameError(Exception):
    """Raised when bytes are not a frame. Frame boundaries are then unknown, so the worker cannot be used any more."""


def encode_header(kind: FrameKind, metadata_bytes: int = 0, header_bytes: int = 0, body_bytes: int = 0) -> bytes:
    """Return the bytes in front of a frame's fields; raises FrameError for a field that is too large."""
    if metadata_bytes > MAX_METADATA_BYTES or header_bytes > MAX_METADATA_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError(f"a field is too large: {metadata_bytes}, {header_bytes}, {body_bytes} bytes")
    return _HEADER.pack(kind, metadata_bytes, header_bytes, body_bytes)


def decode_header(data: Buffer) -> FrameHeader:
    """Parse exactly HEADER_BYTES; raises FrameError."""
    try:
        kind, metadata_bytes, header_bytes, body_bytes = _HEADER.unpack(data)
        known_kind = FrameKind(kind)
    except (struct.error, ValueError) as error:
        raise FrameError(f"not a frame header: {error}") from None
    if metadata_bytes > MAX_METADATA_BYTES or header_bytes > MAX_METADATA_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError(f"a field is too large: {metadata_bytes}, {header_bytes}, {body_bytes} bytes")
    return FrameHeader(known_kind, metadata_bytes, header_bytes, body_bytes)


def encode(
    kind: FrameKind, app_metadata: bytes = b"", data_header: Buffer = b"", data_body: Buffer = b""
) -> list[Buffer]:
    """Return a frame as pieces for `sendmsg`, without copying the large fields."""
    header_view, body_view = memoryview(data_header), memoryview(data_body)
    header = encode_header(kind, len(app_metadata), header_view.nbytes, body_view.nbytes)
    pieces: list[Buffer] = [header + app_metadata]
    pieces.extend(view for view in (header_view, body_view) if view.nbytes)
    return pieces


def after(pieces: Iterable[Buffer], done_bytes: int) -> list[memoryview]:
    """Return the pieces without their first `done_bytes`, which have been sent or received already."""
    rest = []
    for piece in pieces:
        if done_bytes < len(piece):
            rest.append(memoryview(piece)[done_bytes:])
        done_bytes = max(0, done_bytes - len(piece))
    return rest
