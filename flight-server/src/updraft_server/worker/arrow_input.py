# SPDX-License-Identifier: Apache-2.0
"""Turns what a client sent into Arrow, or into a failure that is the client's.

Every check that could be skipped by a hostile client stands before the decoding or in `validate(full=True)`: after
it, user code may use a batch without being able to read outside of it.
"""

import struct
from typing import Any, NamedTuple

import pyarrow as pa

from updraft_server.worker.channel import ReceivedFrame
from updraft_server.worker.failures import LimitFailure, ProtocolFailure
from updraft_server.worker.settings import WorkerSettings

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
_MESSAGE_HEADER = 2
_SCHEMA_ENDIANNESS = 0
_BATCH_LENGTH = 0
_BATCH_NODES = 1
_BATCH_COMPRESSION = 3


class _Input(NamedTuple):
    """The schema of an input and how many arrays its batches have."""

    schema: pa.Schema
    nodes: int


class ArrowInput:
    """Decodes the schemas of an exchange once, then its batches."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._inputs: list[_Input] = []

    @property
    def inputs(self) -> int:
        """How many inputs the function has."""
        return len(self._inputs)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the arguments."""
        if not self._inputs:
            raise ProtocolFailure("a batch arrived before the schema")
        return self._inputs[0].schema

    def decode_schema(self, frame: ReceivedFrame) -> None:
        """Take over the schema that the first message announces; raises ProtocolFailure."""
        if not frame.header.header_bytes:
            raise ProtocolFailure("the first message has no Arrow schema")
        self._inputs.append(_decode_schema(frame.message, "the first message"))

    def decode_second_schema(self, message: bytes) -> None:
        """Take over the schema of a second input; raises ProtocolFailure."""
        self._inputs.append(_decode_schema(pa.py_buffer(message), "second_input_schema"))

    def decode_batch(self, frame: ReceivedFrame, *, sequence: int, of_input: int = 0) -> pa.RecordBatch:
        """A batch that fits the schema and is valid to its last offset; raises ProtocolFailure or LimitFailure."""
        schema, nodes = self._inputs[of_input]
        try:
            message = pa.ipc.read_message(frame.message)
            self._check_message(message, sequence, nodes)
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
        except _MALFORMED as error:
            raise ProtocolFailure(f"batch {sequence} is not an Arrow batch of the announced schema: {error}") from None
        return batch

    def _check_message(self, message: Any, sequence: int, expected_nodes: int) -> None:
        if message.type == "schema":
            raise ProtocolFailure(f"a second schema arrived where batch {sequence} was expected")
        if message.type != "record batch":
            raise ProtocolFailure(f"batch {sequence} is a {message.type}: dictionary-encoded columns are refused")
        table = _Table.root(message.metadata).table(_MESSAGE_HEADER)
        if table.has(_BATCH_COMPRESSION):
            raise ProtocolFailure(f"batch {sequence} has a compressed body, which is refused")
        rows = table.int64(_BATCH_LENGTH)
        if rows > self._settings.max_batch_rows:
            raise LimitFailure(f"batch {sequence} has {rows} rows, the limit is {self._settings.max_batch_rows}")
        nodes = table.vector_length(_BATCH_NODES)
        if nodes != expected_nodes:
            raise ProtocolFailure(f"batch {sequence} has {nodes} arrays where its schema has {expected_nodes}")


def _decode_schema(data: pa.Buffer, what: str) -> _Input:
    try:
        message = pa.ipc.read_message(data)
        if message.type != "schema":
            raise ProtocolFailure(f"{what} must be an Arrow schema, not a {message.type}")
        if _Table.root(message.metadata).table(_MESSAGE_HEADER).int16(_SCHEMA_ENDIANNESS):
            raise ProtocolFailure("the schema announces big-endian data, which is refused")
        schema = pa.ipc.read_schema(message)
        for field in schema:
            _refuse_dictionaries(field.type, field.name)
        return _Input(schema, sum(_count_nodes(field.type) for field in schema))
    except _MALFORMED as error:
        raise ProtocolFailure(f"{what} is not an Arrow schema: {error}") from None


class _Table:
    """Just enough of flatbuffers to look at a few fields, in a buffer that Arrow's verifier has passed."""

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

    def _target(self, field: int) -> int:
        position = self._position + self._offset(field)
        return position + int(struct.unpack_from("<I", self._data, position)[0])


def _children(data_type: pa.DataType) -> list[pa.DataType]:
    if isinstance(data_type, pa.BaseExtensionType):
        return _children(data_type.storage_type)
    if isinstance(data_type, pa.RunEndEncodedType):
        return [data_type.run_end_type, data_type.value_type]
    if isinstance(data_type, pa.MapType):
        return [pa.struct([data_type.key_field, data_type.item_field])]
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def _count_nodes(data_type: pa.DataType) -> int:
    return 1 + sum(_count_nodes(child) for child in _children(data_type))


def _refuse_dictionaries(data_type: pa.DataType, name: str) -> None:
    if pa.types.is_dictionary(data_type):
        raise ProtocolFailure(f"column {name!r} is dictionary-encoded, which is refused")
    for child in _children(data_type):
        _refuse_dictionaries(child, name)
