# SPDX-License-Identifier: Apache-2.0
"""What a worker and a model process say to each other over a socket of their own: a header, and a payload behind it.

A worker sends one request and waits for its answer before it sends the next. Both ends come from the same zygote: they
know the schemas of arguments and results, and only batches travel.
"""

import enum
import math
import struct
from typing import NamedTuple

_HEADER = struct.Struct("<BIdQ")
HEADER_BYTES = _HEADER.size
MAX_PAYLOAD_BYTES = 2**40


class MessageKind(enum.IntEnum):
    """What a message says; the comment names who sends it and what the payload is."""

    ROWS = 1  # worker: a batch of arguments, as an encapsulated IPC message.
    SUSPECT_ROWS = 2  # worker: the same, of a request that was in a batch when a model process died.
    STARTED = 3  # model process: the function gets the suspect's rows now, and nobody else's; empty.
    RESULT = 4  # model process: a batch of results, as an encapsulated IPC message.
    FAILED = 5  # model process: updraft.v1.Error; only this request has failed.
    GOODBYE = 6  # model process: it ends, and has answered what it had read; empty.


class Message(NamedTuple):
    """A parsed header."""

    kind: MessageKind
    sequence: int
    """Of the request's batch in its exchange: a failure names it."""
    sent_seconds: float
    """When it was sent, on the clock that all processes of a machine share (CLOCK_MONOTONIC)."""
    payload_bytes: int


class MessageError(Exception):
    """Raised when bytes are no message: the two ends no longer agree."""


def encode_header(kind: MessageKind, sequence: int = 0, sent_seconds: float = 0.0, payload_bytes: int = 0) -> bytes:
    """The bytes in front of a payload."""
    return _HEADER.pack(kind, sequence, sent_seconds, payload_bytes)


def decode_header(data: bytes | bytearray | memoryview) -> Message:
    """Parse exactly HEADER_BYTES; raises MessageError."""
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
