# SPDX-License-Identifier: Apache-2.0
"""Marks columns of a Parquet file as timestamps without a zone, which the library cannot do beside INT96.

The footer ends a file: FileMetaData in Thrift's compact protocol, its length, `PAR1`. A column is marked by one more
field at the end of its SchemaElement; everything else stays the same.
"""

import struct
from collections.abc import Container, Sequence

from updraft.flight_data import read_varint
from updraft_writer.encoders.encoder import with_end

_TAIL_BYTES = 8

_STOP = 0
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_VARINTS = (_I16, _I32, _I64)
_FILE_VERSION, _FILE_SCHEMA = 1, 2
_CHILDREN, _LOGICAL_TYPE = 5, 10
# LogicalType.TIMESTAMP with isAdjustedToUTC false and the unit MICROS.
_MICROSECONDS_WITHOUT_ZONE = bytes.fromhex("8c 12 1c 2c 00 00 00 00")


def with_whole_footer(pieces: list[bytes]) -> list[bytes]:
    """The last pieces of a file, joined so that the last one has the whole footer."""
    [*_, tail] = with_end(pieces, _TAIL_BYTES)
    return with_end(pieces, _footer_bytes(tail))


def with_named_wall_clocks(pieces: list[bytes], leaves: Sequence[int]) -> list[bytes]:
    """The last pieces of a file, with the leaf columns of these numbers marked as timestamps without a zone."""
    if not leaves:
        return pieces
    [*before, end] = with_whole_footer(pieces)
    return [*before, _with_wall_clocks(end, leaves)]


def _footer_bytes(tail: bytes) -> int:
    return _TAIL_BYTES + int(struct.unpack("<I", tail[-_TAIL_BYTES:-4])[0])


def _with_wall_clocks(end: bytes, leaves: Container[int]) -> bytes:
    start = len(end) - _footer_bytes(end)
    footer = _Footer(end[start:-_TAIL_BYTES])
    named = footer.with_wall_clocks(leaves)
    return b"".join((end[:start], named, struct.pack("<I", len(named)), end[-4:]))


class _Footer:
    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def with_wall_clocks(self, leaves: Container[int]) -> bytes:
        field, kind = self._field(0)
        assert (field, kind) == (_FILE_VERSION, _I32), "a footer begins with its version"
        self._skip(kind)
        field, kind = self._field(field)
        assert (field, kind) == (_FILE_SCHEMA, _LIST), "the schema follows"
        parts: list[bytes | memoryview] = []
        copied = leaf = 0
        for _ in range(self._list()[0]):
            last, is_leaf = self._element()
            if is_leaf and leaf in leaves:
                header = bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT])
                parts += [self._data[copied : self._at], header, _MICROSECONDS_WITHOUT_ZONE]
                copied = self._at
            leaf += is_leaf
            self._at += 1
        return b"".join([*parts, self._data[copied:]])

    def _element(self) -> tuple[int, bool]:
        """Skip to the end of a SchemaElement; returns its last field and whether it is a leaf."""
        field, is_leaf = 0, True
        while self._data[self._at] != _STOP:
            field, kind = self._field(field)
            is_leaf &= field != _CHILDREN
            self._skip(kind)
        return field, is_leaf

    def _field(self, before: int) -> tuple[int, int]:
        header = self._byte()
        return before + (header >> 4), header & 0xF

    def _list(self) -> tuple[int, int]:
        header = self._byte()
        count = header >> 4
        return (self._varint() if count == 0xF else count), header & 0xF

    def _skip(self, kind: int) -> None:
        if kind in _VARINTS:
            self._varint()
        elif kind == _BYTE:
            self._at += 1
        elif kind == _BINARY:
            length = self._varint()
            self._at += length
        elif kind == _STRUCT:
            field = 0
            while self._data[self._at] != _STOP:
                field, inner = self._field(field)
                self._skip(inner)
            self._at += 1
        else:
            # A SchemaElement has no other types; booleans are in their field's header.
            assert kind in (_TRUE, _FALSE), f"a field of kind {kind}"

    def _varint(self) -> int:
        value, self._at = read_varint(self._data, self._at)
        return value

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]
