# SPDX-License-Identifier: Apache-2.0
"""Thrift's compact protocol, as far as Parquet's headers and footers need it: reading, and copying with changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from updraft.flight_data import varint

STOP = 0
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_WIDTHS = {BYTE: 1, DOUBLE: 8}
# Lists with at least this many elements store their number of elements after the header.
_LONG_LIST = 15


class Reader:
    """Reader of a message. Structs store no length, so skipping a struct means parsing it.

    Raises IndexError at the end of the data.
    """

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct. Between two fields, the caller must move past the value."""
        field = 0
        while header := self.data[self.at]:
            self.at += 1
            # In the long form, the field's number follows the header, zigzag-encoded.
            field = field + (header >> 4) if header >> 4 else self.varint() >> 1
            yield field, header & 0xF
        self.at += 1

    def skip(self, kind: int) -> None:
        """Move past a value of this kind. A boolean has no bytes to skip: its kind is TRUE or FALSE."""
        if kind in (I16, I32, I64):
            while self.data[self.at] & 0x80:
                self.at += 1
            self.at += 1
        elif kind == BINARY:
            length = self.varint()
            self.at += length
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (LIST, SET):
            count, inner = self.list()
            for _ in range(count):
                self.skip(_of_element(inner))
        else:
            assert kind not in (MAP, STOP), f"Parquet has no value of kind {kind}"
            self.at += _WIDTHS.get(kind, 0)

    def list(self) -> tuple[int, int]:
        """Move past the header of a list and return the number of its elements and their kind."""
        header = self.data[self.at]
        self.at += 1
        count = header >> 4
        return (self.varint() if count == _LONG_LIST else count), header & 0xF

    def varint(self) -> int:
        """Move past an unsigned number and return it."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def integer(self) -> int:
        """Move past a signed number, I16 to I64, and return it."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)


def integer(value: int) -> bytes:
    """Encode a signed number of at most 64 bits."""
    return varint((value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF)


# Function that moves past a value of the given kind. It returns the bytes to store instead, or None to omit the field.
Change = Callable[[Reader, int], bytes | None]


def changed(reader: Reader, changes: Mapping[int, Change]) -> bytes:
    """Move past a struct and return it with some of its fields changed."""
    copy = bytearray()
    last = 0
    for field, kind in reader.fields():
        start = reader.at
        if field in changes:
            value = changes[field](reader, kind)
        else:
            reader.skip(kind)
            value = bytes(reader.data[start : reader.at])
        if value is not None:
            copy.append((field - last) << 4 | kind)
            copy += value
            last = field
    copy.append(STOP)
    return bytes(copy)


# Decoded struct, which maps each field's number to its kind and value. The value of a struct is a Struct. The value of
# a list is a pair: the kind of its elements, and a list of their values. Doubles stay bytes.
Struct = dict[int, tuple[int, Any]]


def decoded(reader: Reader) -> Struct:
    """Move past a struct and return its fields, in the order of the message."""
    return {field: (kind, _decoded_value(reader, kind)) for field, kind in reader.fields()}


def encoded(message: Struct) -> bytes:
    """Encode the fields of a struct in their order."""
    copy = bytearray()
    last = 0
    for field, (kind, value) in message.items():
        copy.append((field - last) << 4 | kind)
        copy += _encoded_value(kind, value)
        last = field
    copy.append(STOP)
    return bytes(copy)


def _decoded_value(reader: Reader, kind: int) -> Any:
    start = reader.at
    if kind in (I16, I32, I64):
        return reader.integer()
    if kind == STRUCT:
        return decoded(reader)
    if kind in (LIST, SET):
        count, element = reader.list()
        return element, [_decoded_value(reader, _of_element(element)) for _ in range(count)]
    reader.skip(kind)
    return bytes(reader.data[start : reader.at])


def _encoded_value(kind: int, value: Any) -> bytes:
    if kind in (I16, I32, I64):
        return integer(value)
    if kind == STRUCT:
        return encoded(value)
    if kind in (LIST, SET):
        element, values = value
        short = len(values) < _LONG_LIST
        header = bytes([len(values) << 4 | element]) if short else bytes([0xF0 | element]) + varint(len(values))
        return header + b"".join(_encoded_value(_of_element(element), each) for each in values)
    return bytes(value)


def _of_element(kind: int) -> int:
    """Return the kind that a list stores for its elements: BYTE for booleans."""
    return BYTE if kind in (TRUE, FALSE) else kind
