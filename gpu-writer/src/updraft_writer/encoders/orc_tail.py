# SPDX-License-Identifier: Apache-2.0
"""Addition of key-value pairs and the calendar to the footer of an ORC file, for which the library has no option.

A file ends with its footer (a protobuf message, in compressed chunks), the postscript (an uncompressed message) and the
postscript's length in one byte. Bytes appended to a protobuf message become part of the message, and a chunk may be
uncompressed. So this module appends the pairs to the footer in uncompressed chunks, and changes only the footer's
length in the postscript.
"""

from collections.abc import Iterator, Mapping

from updraft.flight_data import read_varint, varint
from updraft_writer.encoders.encoder import with_end
from updraft_writer.pieces import Piece

# The postscript has at most 255 bytes, and its length follows.
_TAIL_BYTES = 256

# Field tags (number and wire type) of Footer and of UserMetadataItem.
_METADATA = 5 << 3 | 2
_CALENDAR = 11 << 3
_NAME, _VALUE = 1 << 3 | 2, 2 << 3 | 2
# Field tags of PostScript.
_FOOTER_LENGTH, _COMPRESSION = 1 << 3, 2 << 3
_JULIAN_GREGORIAN = 1
_LARGEST_CHUNK_BYTES = 32 * 1024
_UNCOMPRESSED_CHUNK = 1


def with_footer_entries(pieces: list[Piece], entries: Mapping[str, str]) -> list[Piece]:
    """Add `entries` and Spark's calendar to the footer in the last pieces of a file."""
    before, end = with_end(pieces, _TAIL_BYTES)
    postscript_bytes = end[-1]
    footer, postscript = end[: -1 - postscript_bytes], end[-1 - postscript_bytes : -1]
    assert postscript[0] == _FOOTER_LENGTH, "a postscript begins with the footer's length"
    footer_length, position = read_varint(memoryview(postscript), 1)
    assert postscript[position] == _COMPRESSION, "the codec follows"
    added = bytes([_CALENDAR, _JULIAN_GREGORIAN]) + b"".join(_items(entries))
    if postscript[position + 1]:
        added = b"".join(_chunks(added))
    postscript = bytes([_FOOTER_LENGTH]) + varint(footer_length + len(added)) + postscript[position:]
    return [*before, footer + added + postscript + bytes([len(postscript)])]


def _items(entries: Mapping[str, str]) -> Iterator[bytes]:
    for name, value in entries.items():
        yield _field(_METADATA, _field(_NAME, name.encode()) + _field(_VALUE, value.encode()))


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _LARGEST_CHUNK_BYTES):
        chunk = data[start : start + _LARGEST_CHUNK_BYTES]
        yield (len(chunk) << 1 | _UNCOMPRESSED_CHUNK).to_bytes(3, "little") + chunk


def _field(tag: int, value: bytes) -> bytes:
    return bytes([tag]) + varint(len(value)) + value
