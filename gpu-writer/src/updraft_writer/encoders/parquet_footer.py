# SPDX-License-Identifier: Apache-2.0
"""Edits of a Parquet file's footer for which the library has no option.

A file ends with its footer (FileMetaData in Thrift's compact protocol), the footer's length, and `PAR1`. An additional
field at the end of a SchemaElement marks a column as timestamps without a zone. Readers ignore a chunk's bounds and
bloom filter if the fields for them are removed. Readers filter by a chunk's dictionary only if all pages of the chunk
use the dictionary. Everything else stays the same.
"""

import enum
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache

from updraft.flight_data import varint
from updraft_writer.encoders.encoder import with_end

_TAIL_BYTES = 8

_STOP = 0
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WIDTHS = {_BYTE: 1, _DOUBLE: 8}
# Fields of FileMetaData, SchemaElement and RowGroup.
_SCHEMA, _ROW_GROUPS = 2, 4
_CHILDREN, _LOGICAL_TYPE = 5, 10
_COLUMNS = 1
# Fields of ColumnChunk, ColumnMetaData and Statistics.
_METADATA, _COLUMN_INDEX = 3, (6, 7)
_STATISTICS, _ENCODING_STATISTICS, _BLOOM_FILTER = 12, 13, (14, 15)
_BOUNDS = (1, 2, 5, 6, 7, 8)
# LogicalType.TIMESTAMP with isAdjustedToUTC false and the unit MICROS.
_MICROSECONDS_WITHOUT_ZONE = bytes.fromhex("8c 12 1c 2c 00 00 00 00")
# PageEncodingStats: zero data pages (type 0) in PLAIN (encoding 0).
_NO_PLAIN_PAGES = bytes.fromhex("15 00 15 00 15 00 00")


class Skipping(enum.Flag):
    """Parts of a column chunk by which readers skip rows."""

    BOUNDS = enum.auto()
    """Minimum and maximum of the chunk and of its pages. The number of nulls is kept."""
    DICTIONARY = enum.auto()
    BLOOM_FILTER = enum.auto()


def with_whole_footer(pieces: list[bytes]) -> list[bytes]:
    """Join the last pieces of a file so that the last one has the whole footer."""
    [*_, tail] = with_end(pieces, _TAIL_BYTES)
    return with_end(pieces, _footer_bytes(tail))


def with_edited_footer(
    pieces: list[bytes], *, wall_clocks: Sequence[int], unusable: Mapping[tuple[int, int], Skipping]
) -> list[bytes]:
    """Edit the footer in the last pieces of a file.

    `wall_clocks` lists the numbers of the leaf columns to mark as timestamps without a zone. `unusable` holds the parts
    that readers must not use, keyed by the numbers of row group and leaf column.
    """
    if not wall_clocks and not unusable:
        return pieces
    [*before, end] = with_whole_footer(pieces)
    start = len(end) - _footer_bytes(end)
    footer = _Footer(end[start:-_TAIL_BYTES]).edited(wall_clocks, unusable)
    return [*before, b"".join((end[:start], footer, struct.pack("<I", len(footer)), end[-4:]))]


def _footer_bytes(tail: bytes) -> int:
    return _TAIL_BYTES + int(struct.unpack("<I", tail[-_TAIL_BYTES:-4])[0])


class _Thrift:
    """Reader of a message in the compact protocol. Structs have no length, so skipping one means parsing it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct. Between two fields, the caller must move past the value."""
        field = 0
        while header := self.data[self.at]:
            self.at += 1
            # In the long form, the field's number itself follows the header, zigzag-encoded.
            field = field + (header >> 4) if header >> 4 else self.varint() >> 1
            yield field, header & 0xF
        self.at += 1

    def skip(self, kind: int) -> None:
        """Move past a value. A boolean field has its value in its kind."""
        if kind in (_I16, _I32, _I64):
            while self.data[self.at] & 0x80:
                self.at += 1
            self.at += 1
        elif kind == _BINARY:
            length = self.varint()
            self.at += length
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_LIST, _SET):
            count, inner = self.list()
            for _ in range(count):
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner)
        else:
            assert kind not in (_MAP, _STOP), f"a footer has no value of kind {kind}"
            self.at += _WIDTHS.get(kind, 0)

    def list(self) -> tuple[int, int]:
        """Move past the header of a list and return the number of its elements and their kind."""
        header = self.data[self.at]
        self.at += 1
        count = header >> 4
        return (self.varint() if count == 0xF else count), header & 0xF

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


# Function that moves past a value of this kind. It returns the bytes to store instead, or None to omit the field.
_Change = Callable[[_Thrift, int], bytes | None]


class _Footer(_Thrift):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._parts: list[bytes] = []
        self._copied = 0

    def edited(self, wall_clocks: Container[int], unusable: Mapping[tuple[int, int], Skipping]) -> bytes:
        for field, kind in self.fields():
            if field == _SCHEMA:
                self._mark_wall_clocks(wall_clocks)
            elif field == _ROW_GROUPS:
                self._edit_row_groups(unusable)
                break
            else:
                self.skip(kind)
        return b"".join([*self._parts, self.data[self._copied :]])

    def _replace(self, start: int, new: bytes) -> None:
        """Replace the bytes from `start` to the current position with `new`."""
        self._parts += [self.data[self._copied : start], new]
        self._copied = self.at

    def _mark_wall_clocks(self, leaves: Container[int]) -> None:
        leaf = 0
        for _ in range(self.list()[0]):
            last, is_leaf = 0, True
            for last, kind in self.fields():
                is_leaf &= last != _CHILDREN
                self.skip(kind)
            if is_leaf and leaf in leaves:
                header = bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT])
                self._replace(self.at - 1, header + _MICROSECONDS_WITHOUT_ZONE + bytes([_STOP]))
            leaf += is_leaf

    def _edit_row_groups(self, unusable: Mapping[tuple[int, int], Skipping]) -> None:
        self.list()
        for row_group in range(max((group for group, _ in unusable), default=-1) + 1):
            for field, kind in self.fields():
                if field != _COLUMNS:
                    self.skip(kind)
                    continue
                for leaf in range(self.list()[0]):
                    if parts := unusable.get((row_group, leaf)):
                        start = self.at
                        self._replace(start, _changed(self, _changes(parts)))
                    else:
                        self.skip(_STRUCT)


@cache
def _changes(unusable: Skipping) -> Mapping[int, _Change]:
    """Return the changes to a ColumnChunk that remove these parts."""
    of_chunk: dict[int, _Change] = {}
    of_metadata: dict[int, _Change] = {}
    if Skipping.BOUNDS in unusable:
        of_chunk |= dict.fromkeys(_COLUMN_INDEX, _left_out)
        of_metadata[_STATISTICS] = _with(dict.fromkeys(_BOUNDS, _left_out))
    if Skipping.DICTIONARY in unusable:
        of_metadata[_ENCODING_STATISTICS] = _with_no_plain_pages
    if Skipping.BLOOM_FILTER in unusable:
        of_metadata |= dict.fromkeys(_BLOOM_FILTER, _left_out)
    return {**of_chunk, _METADATA: _with(of_metadata)}


def _with(changes: Mapping[int, _Change]) -> _Change:
    return lambda reader, _kind: _changed(reader, changes)


def _left_out(reader: _Thrift, kind: int) -> None:
    reader.skip(kind)


def _with_no_plain_pages(reader: _Thrift, _kind: int) -> bytes:
    """Return the page counts of a chunk's encodings, with zero pages of PLAIN added.

    The counts stay correct, but parquet-java no longer assumes that the dictionary has all values of the chunk.
    """
    count, element = reader.list()
    start = reader.at
    for _ in range(count):
        reader.skip(element)
    header = bytes([0xF0 | element]) + varint(count + 1)
    return header + reader.data[start : reader.at] + _NO_PLAIN_PAGES


def _changed(reader: _Thrift, changes: Mapping[int, _Change]) -> bytes:
    """Move past a struct and return it with some of its fields changed."""
    copy = bytearray()
    last = 0
    for field, kind in reader.fields():
        start = reader.at
        if field in changes:
            value = changes[field](reader, kind)
        else:
            reader.skip(kind)
            value = reader.data[start : reader.at]
        if value is not None:
            copy.append((field - last) << 4 | kind)
            copy += value
            last = field
    copy.append(_STOP)
    return bytes(copy)
