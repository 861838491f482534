# SPDX-License-Identifier: Apache-2.0
"""Messages between a worker and a model process over a separate socket: a header, followed by a payload.

A worker sends one request, and waits for the answer before it sends the next. Both processes were forked from the same
zygote and know the schemas of arguments and results, so payloads contain batches without schemas.
"""

import enum
import math
import struct
from typing import NamedTuple

_HEADER = struct.Struct("<BIdQ")
HEADER_BYTES = _HEADER.size
MAX_PAYLOAD_BYTES = 2**40


class MessageKind(enum.IntEnum):
    """Kind of a message; the comment names the sender and the payload."""

    ROWS = 1  # worker: a batch of arguments, as an encapsulated IPC message.
    SUSPECT_ROWS = 2  # worker: like ROWS, for a request that was in a batch when a model process died.
    STARTED = 3  # model process: from now on, the function receives only rows of this request; no payload.
    RESULT = 4  # model process: a batch of results, as an encapsulated IPC message.
    FAILED = 5  # model process: this request, and no other, has failed; updraft.v1.Error.
    GOODBYE = 6  # model process: the process has answered every request that it read, and exits; no payload.
    JOINED = 7  # model process, after STARTED: the function may now receive rows of other requests too; no payload.


class Message(NamedTuple):
    """Parsed header of a message."""

    kind: MessageKind
    sequence: int
    """Number of the request's batch in its exchange. Errors name this number."""
    sent_seconds: float
    """Time when the message was sent, on CLOCK_MONOTONIC, which all processes of a machine share."""
    payload_bytes: int


class MessageError(Exception):
    """Raised when bytes are not a valid message, so that the connection cannot be used any more."""


def encode_header(kind: MessageKind, sequence: int = 0, sent_seconds: float = 0.0, payload_bytes: int = 0) -> bytes:
    """Return the header in front of a payload."""
    return _HEADER.pack(kind, sequence, sent_seconds, payload_bytes)


def decode_header(data: bytes | bytearray | memoryview) -> Message:
    """Parse exactly HEADER_BYTES bytes; raises MessageError."""
    try:
        kind, sequence, sent_seconds, payload_bytes = _HEADER.unpack(data)
        message = Message(MessageKind(kind), sequence, sent_seconds, payload_bytes)
    except (struct.error, ValueError) as error:
        raise MessageError(f"not the header of a message: {error}") from None
    if not math.isfinite(sent_seconds):
        raise MessageError("its send time is not a finite number")
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise MessageError(f"a payload of {payload_bytes} bytes is too large")
    return message
