# SPDX-License-Identifier: Apache-2.0
"""Decoder of a client's Arrow data, which raises errors that blame the client.

A hostile client cannot skip the checks: each check runs before the decoding or in `ArrowLayout.check`. Code that uses a
checked batch cannot read out of bounds. Only a pool's workers and a writer parse bodies.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from updraft.arrow_cost import NO_CLAIMS, Claims, children, claims_of, narrow_leaves, path_bytes
from updraft.arrow_layout import ArrowLayout, Text
from updraft.arrow_metadata import (
    BATCH_BUFFERS,
    BATCH_COMPRESSION,
    BATCH_LENGTH,
    BATCH_NODES,
    header_table,
    is_big_endian,
)
from updraft.errors import LimitError, ProtocolError
from updraft.nested_arrays import with_offsets
from updraft.reply_checks import has_dictionary

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

_MESSAGE_PREFIX_BYTES = 8
_IPC_CONTINUATION = 0xFFFFFFFF
_IPC_ALIGNMENT_BYTES = 8
_BODY_ALIGNMENT_BYTES = 64
_MOST_BYTES_COPIED_BY_PYTHON = 8 << 20

# For every array, even one without rows, an open file or a function needs some kilobytes of memory.
_MAX_ARRAYS = 1 << 15
# A file repeats the names of columns in each row group.
_MAX_PATH_BYTES = 4 << 20
_BITS_PER_BYTE = 8


class ArrowDecoder:
    """Decoder of the batches of one schema; its input is encapsulated IPC messages."""

    def __init__(self, schema: pa.Schema, *, max_batch_rows: int, text: Text = Text.UTF_8) -> None:
        self.schema = schema
        self._layout = ArrowLayout(schema, text)
        self._max_batch_rows = max_batch_rows
        self._nodes = count_arrays(schema)
        self._has_nested = self._nodes > len(schema)
        self._narrow_leaves = narrow_leaves(schema)

    @property
    def has_unbacked(self) -> bool:
        """Whether batches may contain values that take no bytes (`arrow_cost`)."""
        return not all(leaf.is_backed for leaf in self._narrow_leaves)

    @classmethod
    def announced_by(
        cls, encapsulated: pa.Buffer, what: str, *, max_batch_rows: int, text: Text = Text.UTF_8
    ) -> "ArrowDecoder":
        """Return the decoder for the schema in a message; errors call the message `what`.

        Raises:
            ProtocolError: The message is not a schema, or its columns are big-endian or dictionary-encoded.
            LimitError: The schema has too many fields, or its names are too long.
        """
        schema = announced_schema(encapsulated, what)
        with malformed_as(f"{what} is not an Arrow schema"):
            for field in schema:
                if has_dictionary(field.type):
                    raise ProtocolError(f"column {field.name!r} is dictionary-encoded, which is refused")
            return cls(schema, max_batch_rows=max_batch_rows, text=text)

    def claims(self, encapsulated: pa.Buffer, *, sequence: int) -> Claims:
        """Return the memory cost of a batch beyond its bytes (`arrow_cost`), without decoding it.

        Raises:
            ProtocolError: Decoding would raise the same error.
            LimitError: Decoding would raise the same error.
        """
        if not self._narrow_leaves:
            return NO_CLAIMS
        what = f"batch {sequence}"
        with malformed_as(f"{what} is not an Arrow batch of the announced schema"):
            message = pa.ipc.read_message(encapsulated)
            return claims_of(self._narrow_leaves, self._check_message(message, what))

    def decode_batch(
        self, encapsulated: pa.Buffer, *, sequence: int, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> pa.RecordBatch:
        """Decode a batch, match it to the schema and validate it fully; raise ProtocolError or LimitError.

        `check` may refuse the batch. The decoder calls `check` after it has checked the buffers and before it checks
        the values. The check of the values reads every value, even if several values share their bytes, and so may read
        more bytes than the batch contains.
        """
        return self.decode(encapsulated, f"batch {sequence}", check)

    def decode(
        self, encapsulated: pa.Buffer, what: str, check: Callable[[pa.RecordBatch], None] | None = None
    ) -> pa.RecordBatch:
        """Do the same as `decode_batch`; errors call the message `what`."""
        with malformed_as(f"{what} is not an Arrow batch of the announced schema"):
            message = pa.ipc.read_message(encapsulated)
            self._check_message(message, what)
            batch = pa.ipc.read_record_batch(message, self.schema)
            if check is not None:
                batch.validate()
                check(batch)
            self._layout.check(batch)
        return with_offsets(batch) if self._has_nested else batch

    def _check_message(self, message: Any, what: str) -> list[int]:
        """Refuse a message that must not be decoded; return the lengths of its arrays, or [] if no array is narrow."""
        if message.type == "schema":
            raise ProtocolError(f"a second schema arrived where {what} was expected")
        if message.type != "record batch":
            raise ProtocolError(f"{what} is a {message.type}: dictionary-encoded columns are refused")
        table = header_table(memoryview(message.metadata))
        if table.has(BATCH_COMPRESSION):
            raise ProtocolError(f"{what} has a compressed body, which is refused")
        rows = table.int64(BATCH_LENGTH)
        if rows > self._max_batch_rows:
            raise LimitError(f"{what} has {rows} rows, the limit is {self._max_batch_rows}")
        nodes = table.vector_length(BATCH_NODES)
        if nodes != self._nodes:
            raise ProtocolError(f"{what} has {nodes} arrays where its schema has {self._nodes}")
        if rows < 0:
            raise ProtocolError(f"{what} has {rows} rows")
        body_bytes = message.body.size if message.body is not None else 0
        # Arrow accepts buffers that share bytes, but every such column costs as much to process as a column with
        # separate bytes.
        if (buffers_bytes := sum(table.pairs(BATCH_BUFFERS)[1::2])) > body_bytes:
            raise ProtocolError(f"{what} has buffers of {buffers_bytes} bytes in a body of {body_bytes}")
        if not self._narrow_leaves:
            return []
        lengths = table.pairs(BATCH_NODES)[::2].tolist()
        # The limit is the number of rows that a batch may have, or the number of bits in this batch's body, whichever
        # is larger.
        limit = max(self._max_batch_rows, _BITS_PER_BYTE * body_bytes)
        for leaf in self._narrow_leaves:
            if not 0 <= lengths[leaf.node] <= limit:
                raise LimitError(
                    f"{what} has {lengths[leaf.node]} values in one array that takes no memory in Arrow, "
                    f"the limit is {limit}: send fewer rows at once, or shorter lists"
                )
        return lengths


def encapsulated_message(data_header: memoryview, data_body: memoryview) -> pa.Buffer:
    """Copy the fields of a FlightData into one IPC message, whose body starts on a 64-byte boundary."""
    padded = -(-len(data_header) // _IPC_ALIGNMENT_BYTES) * _IPC_ALIGNMENT_BYTES
    body_start = -(-(_MESSAGE_PREFIX_BYTES + padded) // _BODY_ALIGNMENT_BYTES) * _BODY_ALIGNMENT_BYTES
    header_start = body_start - padded
    buffer = pa.allocate_buffer(body_start + len(data_body))
    # Arrow buffers have signed bytes, so cast the view: Python does not copy between memoryviews of different formats.
    view = memoryview(buffer).cast("B")
    struct.pack_into("<Ii", view, header_start - _MESSAGE_PREFIX_BYTES, _IPC_CONTINUATION, padded)
    header_end = header_start + len(data_header)
    view[header_start:header_end] = data_header
    view[header_end:body_start] = bytes(body_start - header_end)
    if len(data_body) <= _MOST_BYTES_COPIED_BY_PYTHON:
        view[body_start:] = data_body
    else:
        # Arrow copies without the GIL, so other threads keep running. Arrow's writer starts at the beginning of the
        # buffer, so write the bytes before the body again.
        writer = pa.FixedSizeBufferWriter(buffer)
        writer.write(view[:body_start].tobytes())
        writer.write(data_body)
    return buffer.slice(header_start - _MESSAGE_PREFIX_BYTES)


def encapsulated_prefix(data_header: memoryview) -> bytes:
    """Return the start of an IPC message, up to its body: a prefix and the padded header."""
    padded = -(-len(data_header) // _IPC_ALIGNMENT_BYTES) * _IPC_ALIGNMENT_BYTES
    return struct.pack("<Ii", _IPC_CONTINUATION, padded) + bytes(data_header).ljust(padded, b"\0")


def announced_schema(encapsulated: pa.Buffer, what: str) -> pa.Schema:
    """Return the schema in a message; its columns may be dictionary-encoded. Raise ProtocolError or LimitError."""
    with malformed_as(f"{what} is not an Arrow schema"):
        message = pa.ipc.read_message(encapsulated)
        if message.type != "schema":
            raise ProtocolError(f"{what} must be an Arrow schema, not a {message.type}")
        if is_big_endian(memoryview(message.metadata)):
            raise ProtocolError("the schema announces big-endian data, which is refused")
        schema = pa.ipc.read_schema(message)
        for field in schema:
            _check_time_zones(field.type)
        arrays, names_bytes = count_arrays(schema), path_bytes(list(schema))
    if arrays > _MAX_ARRAYS:
        raise LimitError(
            f"the schema has {arrays} columns and fields of columns, the limit is {_MAX_ARRAYS}: send fewer columns"
        )
    if names_bytes > _MAX_PATH_BYTES:
        raise LimitError(
            f"the names of the columns take {names_bytes} bytes, each with the names of the columns around it, the "
            f"limit is {_MAX_PATH_BYTES}: send shorter names"
        )
    return schema


@contextlib.contextmanager
def malformed_as(says: str) -> Iterator[None]:
    """Turn errors from reading malformed data into a ProtocolError that begins with `says`."""
    try:
        yield
    except _MALFORMED as error:
        raise ProtocolError(f"{says}: {error}") from None


def count_arrays(schema: pa.Schema) -> int:
    """Return the number of arrays in each batch of a schema."""
    return sum(_count_arrays(field.type) for field in schema)


def _count_arrays(data_type: pa.DataType) -> int:
    return 1 + sum(map(_count_arrays, children(data_type)))


def _check_time_zones(data_type: pa.DataType) -> None:
    """Raise UnicodeDecodeError for a time zone whose name is not valid UTF-8."""
    if pa.types.is_timestamp(data_type):
        # pyarrow decodes the name only when code reads `tz`. Reading `tz` here raises the error before any batch
        # arrives.
        _ = data_type.tz
    if pa.types.is_dictionary(data_type):
        _check_time_zones(data_type.value_type)
    for child in children(data_type):
        _check_time_zones(child)
