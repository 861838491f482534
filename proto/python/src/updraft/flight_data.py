# SPDX-License-Identifier: Apache-2.0
"""Splitting and building of FlightData messages without parsing their contents.

A FlightData is a protobuf message with four fields. `split_flight_data` finds the fields in the received bytes and
returns views of those bytes, so a body is never copied. `join_flight_data` builds the bytes of a reply with one copy.
Received bytes are untrusted: any input gives either the fields or a ProtocolError.
"""

import enum
from collections.abc import Iterator
from typing import NamedTuple

from updraft.errors import ProtocolError

_EMPTY = memoryview(b"")

_DESCRIPTOR_FIELD = 1
_HEADER_FIELD = 2
_METADATA_FIELD = 3
_BODY_FIELD = 1000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
# More fields than any Flight library writes. Without a limit, reading a message full of tiny fields would take a
# minute.
_MAX_FIELDS = 64

_DESCRIPTOR_TAG = b"\x0a"
_HEADER_TAG = b"\x12"
_METADATA_TAG = b"\x1a"
_BODY_TAG = b"\xc2\x3e"


class FlightFields(NamedTuple):
    """Fields of one FlightData, as views into its bytes; an absent field is empty."""

    descriptor: memoryview
    data_header: memoryview
    app_metadata: memoryview
    data_body: memoryview


class DescriptorKind(enum.IntEnum):
    """Values of FlightDescriptor.DescriptorType."""

    UNKNOWN = 0
    PATH = 1
    CMD = 2


class FlightDescriptor(NamedTuple):
    """Parsed FlightDescriptor: `path` is set for PATH, `command` for CMD."""

    kind: DescriptorKind
    command: memoryview
    path: tuple[str, ...]


def split_flight_data(message: bytes) -> FlightFields:
    """Return the fields of a FlightData; raise ProtocolError if the bytes are not a FlightData."""
    descriptor = data_header = app_metadata = data_body = _EMPTY
    for number, value in _length_delimited(memoryview(message)):
        if number == _BODY_FIELD:
            data_body = value
        elif number == _HEADER_FIELD:
            data_header = value
        elif number == _METADATA_FIELD:
            app_metadata = value
        elif number == _DESCRIPTOR_FIELD:
            descriptor = value
    return FlightFields(descriptor, data_header, app_metadata, data_body)


def split_body(message: bytes) -> tuple[memoryview, int]:
    """Return a FlightData without its body, and the body's size.

    The size is 0 if the message does not end with its body. Every Flight library writes the body last.
    """
    view = memoryview(message)
    try:
        body_bytes = len(split_flight_data(message).data_body)
    except ProtocolError:
        return view, 0
    before = _BODY_TAG + varint(body_bytes)
    start = len(message) - body_bytes - len(before)
    if not body_bytes or start < 0 or view[start : start + len(before)] != before:
        return view, 0
    return view[:start], body_bytes


def join_flight_data(
    data_header: memoryview, app_metadata: memoryview | bytes, data_body: memoryview, *, descriptor: bytes = b""
) -> bytes:
    """Return the bytes of a FlightData with these fields; leave out empty fields, as protobuf does."""
    pieces: list[bytes | memoryview] = []
    for tag, value in (
        (_DESCRIPTOR_TAG, descriptor),
        (_HEADER_TAG, data_header),
        (_METADATA_TAG, app_metadata),
        (_BODY_TAG, data_body),
    ):
        if value:
            pieces += (tag + varint(len(value)), value)
    return b"".join(pieces)


def parse_descriptor(data: memoryview) -> FlightDescriptor:
    """Parse a FlightDescriptor; raise ProtocolError if the bytes are not a FlightDescriptor."""
    kind = DescriptorKind.UNKNOWN
    command = _EMPTY
    path: list[str] = []
    for number, wire_type, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = _descriptor_kind(value)
        elif number == 2 and isinstance(value, memoryview):
            command = value
        elif number == 3 and isinstance(value, memoryview):
            path.append(_utf8(value))
        elif number in (1, 2, 3):
            raise ProtocolError(f"field {number} of the flight descriptor has wire type {wire_type}")
    return FlightDescriptor(kind, command, tuple(path))


def _descriptor_kind(value: int) -> DescriptorKind:
    try:
        return DescriptorKind(value)
    except ValueError:
        raise ProtocolError(f"the flight descriptor has the unknown type {value}: expected PATH or CMD") from None


def _utf8(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("the path of the flight descriptor is not UTF-8") from None


def _length_delimited(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    for number, wire_type, value in _fields(data):
        if isinstance(value, memoryview):
            yield number, value
        elif number in (_DESCRIPTOR_FIELD, _HEADER_FIELD, _METADATA_FIELD, _BODY_FIELD):
            raise ProtocolError(f"field {number} of the flight message has wire type {wire_type}")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    position, end, left = 0, len(data), _MAX_FIELDS
    while position < end:
        if not left:
            raise ProtocolError(f"a flight message or descriptor has more than {_MAX_FIELDS} fields")
        left -= 1
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        value: memoryview | int
        if wire_type == _BYTES:
            length, position = read_varint(data, position)
            value, position = data[position : position + length], position + length
        elif wire_type == _VARINT:
            value, position = read_varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            width = 8 if wire_type == _FIXED64 else 4
            value, position = int.from_bytes(data[position : position + width], "little"), position + width
        else:
            raise ProtocolError(f"not a protobuf message: wire type {wire_type}")
        if number == 0 or position > end:
            raise ProtocolError("not a protobuf message: a field reaches beyond the end")
        yield number, wire_type, value


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it; raise ProtocolError if the varint does not end."""
    value = 0
    for shift, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, position + shift + 1
    raise ProtocolError("not a protobuf message: a number does not end")


def varint(value: int) -> bytes:
    """Encode a number as a protobuf varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
