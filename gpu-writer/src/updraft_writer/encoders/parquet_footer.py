# SPDX-License-Identifier: Apache-2.0
"""Edits of a Parquet file's footer for which the library has no option.

A file ends with its footer (FileMetaData in Thrift's compact protocol), the footer's length, and `PAR1`. An additional
field at the end of a SchemaElement marks a column as timestamps without a zone. Readers ignore a chunk's bounds and
bloom filter if this module removes the fields for bounds and bloom filter. Readers filter by a chunk's dictionary only
if all pages of the chunk use the dictionary. All other bytes stay the same.
"""

import enum
import struct
from collections.abc import Container, Mapping, Sequence
from functools import cache

from updraft.flight_data import varint
from updraft_writer.encoders.encoder import with_end
from updraft_writer.encoders.thrift import STOP, STRUCT, Change, Reader, changed
from updraft_writer.pieces import Piece

# The footer's length and `PAR1`.
TAIL_BYTES = 8

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
    """Parts of a column chunk that readers use to skip rows."""

    BOUNDS = enum.auto()
    """Minimum and maximum of the chunk and of its pages. The number of nulls is kept."""
    DICTIONARY = enum.auto()
    BLOOM_FILTER = enum.auto()


def with_whole_footer(pieces: list[Piece]) -> tuple[list[Piece], bytes]:
    """Join the last pieces of a file so that they have the whole footer; return the pieces before them, and the end."""
    _, tail = with_end(pieces, TAIL_BYTES)
    return with_end(pieces, footer_bytes(tail))


def with_edited_footer(
    pieces: list[Piece], *, wall_clocks: Sequence[int], unusable: Mapping[tuple[int, int], Skipping]
) -> list[Piece]:
    """Edit the footer in the last pieces of a file.

    `wall_clocks` lists the numbers of the leaf columns to mark as timestamps without a zone. `unusable` holds the parts
    that readers must not use, keyed by the numbers of row group and leaf column.
    """
    if not wall_clocks and not unusable:
        return pieces
    before, end = with_whole_footer(pieces)
    start = len(end) - footer_bytes(end)
    footer = _Footer(end[start:-TAIL_BYTES]).edited(wall_clocks, unusable)
    return [*before, b"".join((end[:start], footer, struct.pack("<I", len(footer)), end[-4:]))]


def footer_bytes(tail: bytes) -> int:
    """Return the size of the footer, its stored length and `PAR1` together; `tail` is the end of the file."""
    return TAIL_BYTES + int(struct.unpack("<I", tail[-TAIL_BYTES:-4])[0])


class _Footer(Reader):
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
        return b"".join([*self._parts, bytes(self.data[self._copied :])])

    def _replace(self, start: int, new: bytes) -> None:
        """Replace the bytes from `start` to the current position with `new`."""
        self._parts += [bytes(self.data[self._copied : start]), new]
        self._copied = self.at

    def _mark_wall_clocks(self, leaves: Container[int]) -> None:
        leaf = 0
        for _ in range(self.list()[0]):
            last, is_leaf = 0, True
            for last, kind in self.fields():
                is_leaf &= last != _CHILDREN
                self.skip(kind)
            if is_leaf and leaf in leaves:
                header = bytes([(_LOGICAL_TYPE - last) << 4 | STRUCT])
                self._replace(self.at - 1, header + _MICROSECONDS_WITHOUT_ZONE + bytes([STOP]))
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
                        self._replace(start, changed(self, _changes(parts)))
                    else:
                        self.skip(STRUCT)


@cache
def _changes(unusable: Skipping) -> Mapping[int, Change]:
    """Return the changes to a ColumnChunk that remove these parts."""
    of_chunk: dict[int, Change] = {}
    of_metadata: dict[int, Change] = {}
    if Skipping.BOUNDS in unusable:
        of_chunk |= dict.fromkeys(_COLUMN_INDEX, _left_out)
        of_metadata[_STATISTICS] = _with(dict.fromkeys(_BOUNDS, _left_out))
    if Skipping.DICTIONARY in unusable:
        of_metadata[_ENCODING_STATISTICS] = _with_no_plain_pages
    if Skipping.BLOOM_FILTER in unusable:
        of_metadata |= dict.fromkeys(_BLOOM_FILTER, _left_out)
    return {**of_chunk, _METADATA: _with(of_metadata)}


def _with(changes: Mapping[int, Change]) -> Change:
    return lambda reader, _kind: changed(reader, changes)


def _left_out(reader: Reader, kind: int) -> None:
    reader.skip(kind)


def _with_no_plain_pages(reader: Reader, _kind: int) -> bytes:
    """Return the page counts of a chunk's encodings, with an entry of zero pages for PLAIN added.

    The counts stay correct, but the entry keeps parquet-java from assuming that the dictionary contains all values of
    the chunk.
    """
    count, element = reader.list()
    start = reader.at
    for _ in range(count):
        reader.skip(element)
    header = bytes([0xF0 | element]) + varint(count + 1)
    return header + bytes(reader.data[start : reader.at]) + _NO_PLAIN_PAGES
