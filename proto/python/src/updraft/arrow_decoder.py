# SPDX-License-Identifier: Apache-2.0
"""Decodes a client's Arrow data, or raises an error that blames the client.

All checks run before the decoding or in `ArrowLayout.check`, where a hostile client cannot skip them: a batch that
passed can be used without reading out of bounds. Used where bodies are parsed: in a pool's workers and in a writer.
"""

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from updraft.arrow_cost import NO_CLAIMS, Claims, children, claims_of, narrow_leaves, path_bytes
from updraft.arrow_layout import ArrowLayout, Text
from updraft.errors import LimitError, ProtocolError
from updraft.list_offsets import with_offsets

_MALFORMED = (
    pa.ArrowException,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    OverflowError,
    struct.error,
)

# Fields of the flatbuffer tables Message, Schema and RecordBatch, by the order of Arrow's format/Message.fbs.
_MESSAGE_PREFIX_BYTES = 8
_IPC_CONTINUATION = 0xFFFFFFFF
_IPC_ALIGNMENT_BYTES = 8
_BODY_ALIGNMENT_BYTES = 64
_MOST_BYTES_COPIED_BY_PYTHON = 8 << 20
_MESSAGE_HEADER = 2
_SCHEMA_ENDIANNESS = 0
_BATCH_LENGTH = 0
_BATCH_NODES = 1
_BATCH_BUFFERS = 2
_BATCH_COMPRESSION = 3
# A FieldNode is a length and a number of nulls, a Buffer an offset and a length.
_PAIR_BYTES = 16

# Every array costs an open file or a function some kilobytes, even without rows.
_MAX_ARRAYS = 1 << 15
# Files repeat the names of columns in each row group.
_MAX_PATH_BYTES = 4 << 20
_BITS_PER_BYTE = 8


class ArrowDecoder:
    """Decodes the batches of one schema; messages are encapsulated IPC messages."""

    def __init__(self, schema: pa.Schema, *, max_batch_rows: int, text: Text = Text.UTF_8) -> None:
        self.schema = schema
        self._layout = ArrowLayout(schema, text)
        self._max_batch_rows = max_batch_rows
        self._nodes = sum(_count_nodes(field.type) for field in schema)
        self._has_nested = self._nodes > len(schema)
        self._narrow_leaves = narrow_leaves(schema)

    @property
    def has_unbacked(self) -> bool:
        """Whether batches may have values that no byte stands behind (`arrow_cost`)."""
        return not all(leaf.is_backed for leaf in self._narrow_leaves)

    @classmethod
    def announced_by(
        cls, encapsulated: pa.Buffer, what: str, *, max_batch_rows: int, text: Text = Text.UTF_8
    ) -> "ArrowDecoder":
        """The decoder for the schema in a message; errors refer to it as `what`. Raises ProtocolError."""
        try:
            message = pa.ipc.read_message(encapsulated)
            if message.type != "schema":
                raise ProtocolError(f"{what} must be an Arrow schema, not a {message.type}")
            if _Table.root(message.metadata).table(_MESSAGE_HEADER).int16(_SCHEMA_ENDIANNESS):
                raise ProtocolError("the schema announces big-endian data, which is refused")
            schema = pa.ipc.read_schema(message)
            for field in schema:
                _check_type(field.type, field.name)
            decoder = cls(schema, max_batch_rows=max_batch_rows, text=text)
            names_bytes = path_bytes(list(schema))
        except _MALFORMED as error:
            raise ProtocolError(f"{what} is not an Arrow schema: {error}") from None
        if decoder._nodes > _MAX_ARRAYS:
            raise LimitError(
                f"the schema has {decoder._nodes} columns and fields of columns, the limit is {_MAX_ARRAYS}: "
                "send fewer columns"
            )
        if names_bytes > _MAX_PATH_BYTES:
            raise LimitError(
                f"the names of the columns take {names_bytes} bytes, each with the names of the columns around it, the "
                f"limit is {_MAX_PATH_BYTES}: send shorter names"
            )
        return decoder

    def claims(self, encapsulated: pa.Buffer, *, sequence: int) -> Claims:
        """What a batch costs in memory beyond its bytes (`arrow_cost`); decodes nothing.

        Raises ProtocolError and LimitError, as decoding it would.
        """
        if not self._narrow_leaves:
            return NO_CLAIMS
        try:
            message = pa.ipc.read_message(encapsulated)
            return claims_of(self._narrow_leaves, self._check_message(message, sequence))
        except _MALFORMED as error:
            raise ProtocolError(f"batch {sequence} is not an Arrow batch of the announced schema: {error}") from None

    def decode_batch(
        self, encapsulated: pa.Buffer, *, sequence: int, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> pa.RecordBatch:
        """A batch that matches the schema and is fully validated; raises ProtocolError or LimitError.

        `check` may refuse a batch whose buffers are there and whose values nobody has looked at yet: validation reads
        each of them, also those that share their bytes.
        """
        try:
            message = pa.ipc.read_message(encapsulated)
            self._check_message(message, sequence)
            batch = pa.ipc.read_record_batch(message, self.schema)
            if check is not None:
                batch.validate()
                check(batch)
            self._layout.check(batch)
        except _MALFORMED as error:
            raise ProtocolError(f"batch {sequence} is not an Arrow batch of the announced schema: {error}") from None
        return with_offsets(batch) if self._has_nested else batch

    def _check_message(self, message: Any, sequence: int) -> list[int]:
        """Refuse what must not be decoded; returns the lengths of all arrays if any of them is narrow."""
        if message.type == "schema":
            raise ProtocolError(f"a second schema arrived where batch {sequence} was expected")
        if message.type != "record batch":
            raise ProtocolError(f"batch {sequence} is a {message.type}: dictionary-encoded columns are refused")
        table = _Table.root(message.metadata).table(_MESSAGE_HEADER)
        if table.has(_BATCH_COMPRESSION):
            raise ProtocolError(f"batch {sequence} has a compressed body, which is refused")
        rows = table.int64(_BATCH_LENGTH)
        if rows > self._max_batch_rows:
            raise LimitError(f"batch {sequence} has {rows} rows, the limit is {self._max_batch_rows}")
        nodes = table.vector_length(_BATCH_NODES)
        if nodes != self._nodes:
            raise ProtocolError(f"batch {sequence} has {nodes} arrays where its schema has {self._nodes}")
        if rows < 0:
            raise ProtocolError(f"batch {sequence} has {rows} rows")
        body_bytes = message.body.size if message.body is not None else 0
        # Arrow reads buffers that share bytes, and every column costs as if it had its own.
        if (buffers_bytes := sum(table.pairs(_BATCH_BUFFERS)[1::2])) > body_bytes:
            raise ProtocolError(f"batch {sequence} has buffers of {buffers_bytes} bytes in a body of {body_bytes}")
        if not self._narrow_leaves:
            return []
        lengths = table.pairs(_BATCH_NODES)[::2].tolist()
        # As many as a batch may have rows, or as have at least a bit each.
        limit = max(self._max_batch_rows, _BITS_PER_BYTE * body_bytes)
        for leaf in self._narrow_leaves:
            if not 0 <= lengths[leaf.node] <= limit:
                raise LimitError(
                    f"batch {sequence} has {lengths[leaf.node]} values in one array that takes no memory in Arrow, "
                    f"the limit is {limit}: send fewer rows at once, or shorter lists"
                )
        return lengths


def encapsulated_message(data_header: memoryview, data_body: memoryview) -> pa.Buffer:
    """The fields of a FlightData as one IPC message, its body on a 64-byte boundary; copies both."""
    padded = -(-len(data_header) // _IPC_ALIGNMENT_BYTES) * _IPC_ALIGNMENT_BYTES
    body_start = -(-(_MESSAGE_PREFIX_BYTES + padded) // _BODY_ALIGNMENT_BYTES) * _BODY_ALIGNMENT_BYTES
    header_start = body_start - padded
    buffer = pa.allocate_buffer(body_start + len(data_body))
    # Arrow buffers have signed bytes, and memoryviews of different formats cannot be assigned to each other.
    view = memoryview(buffer).cast("B")
    struct.pack_into("<Ii", view, header_start - _MESSAGE_PREFIX_BYTES, _IPC_CONTINUATION, padded)
    header_end = header_start + len(data_header)
    view[header_start:header_end] = data_header
    view[header_end:body_start] = bytes(body_start - header_end)
    if len(data_body) <= _MOST_BYTES_COPIED_BY_PYTHON:
        view[body_start:] = data_body
    else:
        # Arrow copies without Python's lock, so other threads go on meanwhile. Its writer cannot begin in the middle.
        writer = pa.FixedSizeBufferWriter(buffer)
        writer.write(view[:body_start].tobytes())
        writer.write(data_body)
    return buffer.slice(header_start - _MESSAGE_PREFIX_BYTES)


class _Table:
    """Just enough of flatbuffers to read a few fields of a buffer that Arrow's verifier has accepted."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - struct.unpack_from("<i", data, position)[0]
        self._vtable_bytes = struct.unpack_from("<H", data, self._vtable)[0]

    @classmethod
    def root(cls, metadata: pa.Buffer) -> "_Table":
        data = memoryview(metadata)
        # Message.metadata may or may not include the prefix of an encapsulated message.
        start = _MESSAGE_PREFIX_BYTES if bytes(data[:4]) == b"\xff\xff\xff\xff" else 0
        return cls(data[start:], struct.unpack_from("<I", data, start)[0])

    def _offset(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_bytes:
            return 0
        return int(struct.unpack_from("<H", self._data, self._vtable + entry)[0])

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def _scalar(self, layout: str, field: int) -> int:
        offset = self._offset(field)
        return int(struct.unpack_from(layout, self._data, self._position + offset)[0]) if offset else 0

    def int16(self, field: int) -> int:
        return self._scalar("<h", field)

    def int64(self, field: int) -> int:
        return self._scalar("<q", field)

    def table(self, field: int) -> "_Table":
        return _Table(self._data, self._target(field))

    def vector_length(self, field: int) -> int:
        return int(struct.unpack_from("<I", self._data, self._target(field))[0]) if self.has(field) else 0

    def pairs(self, field: int) -> memoryview:
        """The numbers of a vector of pairs, one behind the other."""
        if not self.has(field):
            return memoryview(b"").cast("q")
        start = self._target(field) + 4
        return self._data[start : start + _PAIR_BYTES * self.vector_length(field)].cast("q")

    def _target(self, field: int) -> int:
        position = self._position + self._offset(field)
        return position + int(struct.unpack_from("<I", self._data, position)[0])


def _count_nodes(data_type: pa.DataType) -> int:
    return 1 + sum(_count_nodes(child) for child in children(data_type))


def _check_type(data_type: pa.DataType, name: str) -> None:
    """Raise ProtocolError for dictionaries, and UnicodeDecodeError for a time zone that is no text."""
    if pa.types.is_dictionary(data_type):
        raise ProtocolError(f"column {name!r} is dictionary-encoded, which is refused")
    if pa.types.is_timestamp(data_type):
        # Whether its name is text shows when somebody asks for it: better now.
        _ = data_type.tz
    for child in children(data_type):
        _check_type(child, name)
