# SPDX-License-Identifier: Apache-2.0
"""Reader for the fields of Arrow's IPC metadata that pyarrow does not expose, with a minimal flatbuffers parser.

Pass only metadata that Arrow's verifier has accepted (`pyarrow.ipc.read_message`). Only `is_dictionary` accepts any
bytes.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

# Field numbers of the flatbuffer tables, in the order of Arrow's format/Message.fbs and format/Schema.fbs.
BATCH_LENGTH = 0
BATCH_NODES = 1
BATCH_BUFFERS = 2
BATCH_COMPRESSION = 3
_MESSAGE_HEADER_TYPE = 1
_MESSAGE_HEADER = 2
_SCHEMA_ENDIANNESS = 0
_SCHEMA_FIELDS = 1
_FIELD_DICTIONARY = 4
_FIELD_CHILDREN = 5
_ENCODING_ID = 0
_DICTIONARY_ID = 0
_DICTIONARY_DATA = 1
_DICTIONARY_IS_DELTA = 2
# Members of the union MessageHeader.
_TYPE_DICTIONARY = 2
_TYPE_RECORD_BATCH = 3

# Size of a FieldNode (a length and a null count) and of a Buffer (an offset and a length).
_PAIR_BYTES = 16
_OFFSET_BYTES = 4
_MESSAGE_PREFIX_BYTES = 8


class Table:
    """Table of a flatbuffer."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self.position = position
        self._vtable = position - struct.unpack_from("<i", data, position)[0]
        self._vtable_bytes = struct.unpack_from("<H", data, self._vtable)[0]

    @classmethod
    def root(cls, metadata: memoryview) -> "Table":
        """Return the Message table of a message's metadata."""
        return cls(metadata, struct.unpack_from("<I", metadata, 0)[0])

    def has(self, field: int) -> bool:
        """Return whether the field is present."""
        return self._offset(field) != 0

    def uint8(self, field: int) -> int:
        """Return a number, or 0 if it is absent."""
        return self._scalar("<B", field)

    def int16(self, field: int) -> int:
        """Return a number, or 0 if it is absent."""
        return self._scalar("<h", field)

    def int64(self, field: int) -> int:
        """Return a number, or 0 if it is absent."""
        return self._scalar("<q", field)

    def table(self, field: int) -> "Table":
        """Return the table that a field refers to; raise KeyError if the field is absent."""
        if not self.has(field):
            raise KeyError(f"the metadata have no field {field}")
        return Table(self._data, self._target(self.place(field)))

    def tables(self, field: int) -> Iterator["Table"]:
        """Yield the tables of a vector."""
        if self.has(field):
            start = self._target(self.place(field)) + _OFFSET_BYTES
            for number in range(self.vector_length(field)):
                yield Table(self._data, self._target(start + _OFFSET_BYTES * number))

    def vector_length(self, field: int) -> int:
        """Return the number of members of a vector."""
        if not self.has(field):
            return 0
        return int(struct.unpack_from("<I", self._data, self._target(self.place(field)))[0])

    def pairs(self, field: int) -> memoryview:
        """Return the numbers of a vector of pairs as one flat sequence."""
        if not self.has(field):
            return memoryview(b"").cast("q")
        start = self._target(self.place(field)) + _OFFSET_BYTES
        return self._data[start : start + _PAIR_BYTES * self.vector_length(field)].cast("q")

    def place(self, field: int) -> int:
        """Return the position of the field in the flatbuffer."""
        return self.position + self._offset(field)

    def _offset(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_bytes:
            return 0
        return int(struct.unpack_from("<H", self._data, self._vtable + entry)[0])

    def _scalar(self, layout: str, field: int) -> int:
        return int(struct.unpack_from(layout, self._data, self.place(field))[0]) if self.has(field) else 0

    def _target(self, place: int) -> int:
        return place + int(struct.unpack_from("<I", self._data, place)[0])


def is_dictionary(data_header: memoryview) -> bool:
    """Return whether a message claims to be a dictionary; accept any bytes."""
    try:
        return Table.root(data_header).uint8(_MESSAGE_HEADER_TYPE) == _TYPE_DICTIONARY
    except struct.error:
        return False


def header_table(metadata: memoryview) -> Table:
    """Return the Schema, RecordBatch or DictionaryBatch table of a message."""
    return Table.root(_without_prefix(metadata)).table(_MESSAGE_HEADER)


def is_big_endian(metadata: memoryview) -> bool:
    """Return whether a schema announces big-endian data."""
    return header_table(metadata).int16(_SCHEMA_ENDIANNESS) != 0


def dictionary_ids(metadata: memoryview, *, most_fields: int) -> Iterator[int]:
    """Yield the ids of a schema's dictionaries in the order of its fields, depth first.

    Raises:
        ValueError: The metadata list more fields than `most_fields`. Without this limit, a client could cheaply send
            many fields inside a column whose type has no fields.
    """
    waiting = [header_table(metadata).tables(_SCHEMA_FIELDS)]
    while waiting:
        if (field := next(waiting[-1], None)) is None:
            waiting.pop()
            continue
        most_fields -= 1
        if most_fields < 0:
            raise ValueError("the schema has more fields than its types")
        if field.has(_FIELD_DICTIONARY):
            yield field.table(_FIELD_DICTIONARY).int64(_ENCODING_ID)
        waiting.append(field.tables(_FIELD_CHILDREN))


class DictionaryBatch(NamedTuple):
    """Metadata of one dictionary message."""

    dictionary_id: int
    is_delta: bool
    """Whether the message's values are appended to the dictionary's current values."""
    values: bytes
    """Metadata of a record batch whose only column contains the values."""


def dictionary_batch(metadata: memoryview) -> DictionaryBatch:
    """Read the metadata of a dictionary.

    A dictionary message wraps a record batch with one column. The result's `values` are the metadata of that record
    batch, so that the decoder of record batches can read and check it.
    """
    message = bytearray(_without_prefix(metadata))
    root = Table.root(memoryview(message))
    header = root.table(_MESSAGE_HEADER)
    values = header.table(_DICTIONARY_DATA)
    found = header.int64(_DICTIONARY_ID), header.uint8(_DICTIONARY_IS_DELTA) != 0
    message[root.place(_MESSAGE_HEADER_TYPE)] = _TYPE_RECORD_BATCH
    place = root.place(_MESSAGE_HEADER)
    # Offsets are unsigned, so they can only point forward. That suffices here, because both the dictionary and its
    # record batch lie behind this field.
    struct.pack_into("<I", message, place, values.position - place)
    return DictionaryBatch(*found, bytes(message))


def _without_prefix(metadata: memoryview) -> memoryview:
    # Message.metadata may or may not include the prefix of an encapsulated message.
    return metadata[_MESSAGE_PREFIX_BYTES:] if bytes(metadata[:4]) == b"\xff\xff\xff\xff" else metadata
