# SPDX-License-Identifier: Apache-2.0
"""Checksums of Parquet pages, for a library that writes none.

A page's header has an optional field for the CRC32 of the page's bytes. Adding this field makes the header longer, so
everything after the header moves. This module adds the checksums to the pages while a row group is encoded. Once the
file is closed, the module corrects the offsets and sizes in the end of the file (page indexes and footer). All other
bytes stay the same: a library that supports checksums would write the same file.
"""

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator

from updraft.errors import EncodeError
from updraft_writer.encoders.parquet_footer import footer_bytes
from updraft_writer.encoders.thrift import I32, I64, Reader, Struct, decoded, encoded, integer

_MAGIC_BYTES = 4
# Fields of PageHeader: the size of the page's stored bytes, and their checksum.
_PAGE_BYTES, _CHECKSUM = 3, 4
# Fields of FileMetaData and RowGroup.
_ROW_GROUPS = 4
_COLUMNS, _BYTES_OF_ROW_GROUP, _ROW_GROUP_AT, _STORED_BYTES_OF_ROW_GROUP = 1, 2, 5, 6
# Fields of ColumnChunk. The field after an index's offset contains the index's length.
_CHUNK_AT, _METADATA, _OFFSET_INDEX_AT = 2, 3, 4
_INDEXES_AT = (_OFFSET_INDEX_AT, 6)
# Fields of ColumnMetaData.
_BYTES, _STORED_BYTES, _DATA_AT, _INDEX_AT, _DICTIONARY_AT = 6, 7, 9, 10, 11
# Fields of OffsetIndex and PageLocation.
_PAGES = 1
_PAGE_AT, _PAGE_SIZE = 1, 2


class PageChecksums:
    """Checksums of one file's pages."""

    def __init__(self) -> None:
        self._at = 0
        # Offsets of the page headers in the library's file. For each page, also the number of bytes added by the
        # checksums up to and including this page's.
        self._starts: list[int] = []
        self._growths: list[int] = []
        # Start of a page whose rest has not been written yet.
        self._begun = b""

    def add(self, data: memoryview) -> Iterator[memoryview | bytes]:
        """Yield the bytes that the library writes next, with a checksum in each page's header.

        The yielded parts are views of `data` where possible. Raises EncodeError for bytes that are not pages.
        """
        if self._begun:
            data, self._begun = memoryview(self._begun + data), b""
        done = 0
        if not self._at and data:
            done = _MAGIC_BYTES
            yield data[:done]
        while done < len(data):
            found = self._page(data, done)
            if found is None:
                self._begun = bytes(data[done:])
                break
            header, body, end = found
            self._starts.append(self._at + done)
            self._growths.append((self._growths[-1] if self._growths else 0) + len(header) - (body - done))
            yield header
            yield data[body:end]
            done = end
        self._at += done

    def end(self, end: bytes) -> bytes:
        """Return the end of the file, which begins after the last page, with new offsets and sizes.

        Raises EncodeError if the footer describes other pages.
        """
        if self._begun:
            raise EncodeError(f"the library ended the file within a page, {len(self._begun)} bytes after its start")
        return _End(end, self._at, self._starts, self._growths).moved()

    @staticmethod
    def _page(data: memoryview, start: int) -> tuple[bytes, int, int] | None:
        """Return the new header of a page, and where the page's bytes begin and end; None if the page is incomplete."""
        reader = Reader(data, start)
        size = after_size = 0
        try:
            for field, kind in reader.fields():
                if field == _PAGE_BYTES and kind == I32:
                    size = reader.integer()
                    after_size = reader.at
                    continue
                if field == _CHECKSUM:
                    raise EncodeError("the library has begun to write page checksums: update the writer")
                reader.skip(kind)
        except IndexError:
            return None
        except AssertionError as error:
            raise EncodeError(f"the bytes after a page are not a page header: {error}") from error
        following = data[after_size] >> 4
        if not after_size or following < 2:
            raise EncodeError("the bytes after a page are not a page header: they have no page size")
        body, end = reader.at, reader.at + size
        if end > len(data):
            return None
        checksum = zlib.crc32(data[body:end])
        # A field stores the difference between its number and the previous field's number. The field that followed the
        # size now follows the checksum, so its difference is one less.
        field_header = bytes([data[after_size] - 0x10])
        signed = checksum - (checksum >> 31 << 32)
        parts = (
            data[start:after_size],
            bytes([0x10 | I32]),
            integer(signed),
            field_header,
            data[after_size + 1 : body],
        )
        return b"".join(parts), body, end


class _End:
    """End of a file: the indexes of its pages, and its footer."""

    def __init__(self, end: bytes, at: int, starts: list[int], growths: list[int]) -> None:
        self._end = end
        self._at = at
        self._starts = starts
        self._growths = growths
        self._footer_at = len(end) - footer_bytes(end)

    def moved(self) -> bytes:
        footer = decoded(Reader(self._end[self._footer_at :]))
        _, (_, row_groups) = footer[_ROW_GROUPS]
        chunks = []
        for row_group in row_groups:
            _, (_, of_row_group) = row_group[_COLUMNS]
            chunks += of_row_group
            grown = sum(map(self._move_chunk, of_row_group))
            _add(row_group, grown, _BYTES_OF_ROW_GROUP, _STORED_BYTES_OF_ROW_GROUP)
            self._move(row_group, _ROW_GROUP_AT)
        indexes = self._moved_indexes(chunks)
        written = encoded(footer)
        return b"".join((indexes, written, struct.pack("<I", len(written)), self._end[-4:]))

    def _growth(self, at: int) -> int:
        """Return the number of bytes that the checksums add before an offset."""
        pages = bisect_left(self._starts, at)
        return self._growths[pages - 1] if pages else 0

    def _move(self, message: Struct, *fields: int) -> None:
        """Move the offsets in these fields of a message."""
        for field in fields:
            if field in message:
                _add(message, self._growth(message[field][1]), field)

    def _move_chunk(self, chunk: Struct) -> int:
        """Move the offsets of a column chunk; return the number of bytes that checksums add to the chunk."""
        _, metadata = chunk[_METADATA]
        if not metadata[_STORED_BYTES][1]:
            return 0
        start = metadata.get(_DICTIONARY_AT, (I64, 0))[1] or metadata[_DATA_AT][1]
        page = bisect_left(self._starts, start)
        if page == len(self._starts) or self._starts[page] != start:
            raise EncodeError(f"the footer has a column at offset {start}, but no page begins there")
        grown = self._growth(start + metadata[_STORED_BYTES][1]) - self._growth(start)
        _add(metadata, grown, _BYTES, _STORED_BYTES)
        self._move(metadata, _DATA_AT, _INDEX_AT, _DICTIONARY_AT)
        self._move(chunk, _CHUNK_AT)
        return grown

    def _moved_indexes(self, chunks: list[Struct]) -> bytes:
        """Return the indexes of all pages, and set their new offsets and lengths in the chunks."""
        places = [(chunk[field][1], field, chunk) for chunk in chunks for field in _INDEXES_AT if field in chunk]
        indexes = bytearray()
        grown_bytes = self._growths[-1] if self._growths else 0
        for at, field, chunk in sorted(places, key=lambda place: place[0]):
            start, size = at - self._at, chunk[field + 1][1]
            if start < 0 or start + size > self._footer_at:
                raise EncodeError(
                    f"the footer has an index of {size} bytes at offset {at}, outside the part after the pages"
                )
            index = self._end[start : start + size]
            if field == _OFFSET_INDEX_AT:
                index = self._moved_index(index)
            chunk[field] = (I64, self._at + grown_bytes + len(indexes))
            chunk[field + 1] = (I32, len(index))
            indexes += index
        return bytes(indexes)

    def _moved_index(self, index: bytes) -> bytes:
        message = decoded(Reader(index))
        _, (_, pages) = message[_PAGES]
        for page in pages:
            _, at = page[_PAGE_AT]
            _add(page, self._growth(at + 1) - self._growth(at), _PAGE_SIZE)
            self._move(page, _PAGE_AT)
        return encoded(message)


def _add(message: Struct, more: int, *fields: int) -> None:
    for field in fields:
        if field in message:
            kind, value = message[field]
            message[field] = (kind, value + more)
