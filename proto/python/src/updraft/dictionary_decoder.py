# SPDX-License-Identifier: Apache-2.0
"""Decoder that turns dictionary-encoded columns into plain columns; its errors blame the client.

On the wire, a dictionary-encoded column is a column of indexes, and a dictionary is a batch with one column of values.
`ArrowDecoder` reads and checks both batches, and this module replaces the indexes with the values. A client sends a
value once, however many rows use it, so decoding can multiply the size of a batch. Before decoding, this module
therefore checks that the decoded columns stay within the limit for a batch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder, announced_schema, count_arrays, encapsulated_message, malformed_as
from updraft.arrow_layout import Text
from updraft.arrow_metadata import dictionary_batch, dictionary_ids
from updraft.dictionaries import Dictionary, is_decoded
from updraft.errors import LimitError, ProtocolError
from updraft.nested_arrays import arrays_inside, fields_inside, with_arrays_inside, with_fields_inside
from updraft.reply_checks import has_dictionary

# This limit is generous: clients send a dictionary, or an addition to it, at most once before each batch.
_MOST_MESSAGES_PER_DICTIONARY = 16


class DecodedLimit(NamedTuple):
    """Memory limit for the dictionaries of a stream, and for each decoded batch."""

    limit_bytes: int
    setting: str
    """Name of the setting that errors tell the user to raise."""


class _Encoded(NamedTuple):
    """Column or field that is dictionary-encoded, or that contains a dictionary-encoded field."""

    decoded: pa.DataType
    indexes: pa.DataType
    """Type on the wire, which has indexes in place of values."""
    dictionary_id: int | None
    """Id of the dictionary; None if only fields inside are dictionary-encoded."""
    inside: list["_Encoded | None"]
    """One entry for each field inside; None for a field without dictionaries."""


class _Room:
    """Memory that a batch may still take."""

    def __init__(self, sequence: int, limit: DecodedLimit) -> None:
        self._sequence, self._limit = sequence, limit
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Add `size_bytes` to the memory of the batch; raise LimitError if the batch exceeds its limit."""
        self._taken_bytes += size_bytes
        if self._taken_bytes > self._limit.limit_bytes:
            raise LimitError(
                f"batch {self._sequence} has {self._taken_bytes} bytes or more once its dictionaries are decoded, the "
                f"limit is {self._limit.limit_bytes}: send smaller batches, or raise {self._limit.setting}"
            )


class DictionaryDecoder:
    """Decoder of the batches of one schema, in the order in which batches and dictionaries arrive."""

    def __init__(
        self, schema: pa.Schema, ids: Iterator[int], *, limit: DecodedLimit, max_batch_rows: int, text: Text
    ) -> None:
        """Prepare decoding; `ids` yields the ids of the schema's dictionaries, depth first. Raise ProtocolError."""
        self._limit, self._max_batch_rows, self._text = limit, max_batch_rows, text
        self._kinds: dict[int, pa.DataType] = {}
        self._dictionaries: dict[int, Dictionary] = {}
        self._messages = 0
        self._columns = [self._encoded(field.type, ids, field.name) for field in schema]
        if next(ids, None) is not None:
            raise ProtocolError("the schema has a dictionary where no column is dictionary-encoded")
        decoded, indexes = _both(list(schema), self._columns)
        self.schema = pa.schema(decoded, metadata=schema.metadata)
        """Schema of the decoded batches."""
        self._decoder = ArrowDecoder(pa.schema(indexes), max_batch_rows=max_batch_rows, text=text)

    @classmethod
    def announced_by(
        cls, encapsulated: pa.Buffer, what: str, *, limit: DecodedLimit, max_batch_rows: int, text: Text
    ) -> "DictionaryDecoder":
        """Return the decoder for the schema in a message; errors call the message `what`.

        Raises:
            ProtocolError: The message is not a schema, or has dictionaries that this decoder does not support.
            LimitError: The schema has too many fields, or its names are too long.
        """
        schema = announced_schema(encapsulated, what)
        with malformed_as(f"{what} is not an Arrow schema"):
            metadata = memoryview(pa.ipc.read_message(encapsulated).metadata)
            ids = dictionary_ids(metadata, most_fields=count_arrays(schema))
            return cls(schema, ids, limit=limit, max_batch_rows=max_batch_rows, text=text)

    def add_dictionary(self, encapsulated: pa.Buffer, *, sequence: int) -> None:
        """Add a dictionary that arrived before batch `sequence`; raise ProtocolError or LimitError."""
        what = f"a dictionary before batch {sequence}"
        self._messages += 1
        if self._messages > (most := _MOST_MESSAGES_PER_DICTIONARY * max(1, len(self._kinds))):
            raise LimitError(f"more than {most} dictionaries came before batch {sequence}: send each once")
        with malformed_as(f"{what} is not an Arrow dictionary"):
            message = pa.ipc.read_message(encapsulated)
            if message.type != "dictionary":
                raise ProtocolError(f"{what} is a {message.type}")
            read = dictionary_batch(memoryview(message.metadata))
            if (kind := self._kinds.get(read.dictionary_id)) is None:
                raise ProtocolError(f"{what} has the id {read.dictionary_id}, which no column uses")
            dictionary = self._dictionaries.setdefault(read.dictionary_id, Dictionary(kind))
            self._check_held(what, encapsulated.size, None if read.is_delta else dictionary)
            body = memoryview(message.body if message.body is not None else b"").cast("B")
            values = encapsulated_message(memoryview(read.values), body)
        decoder = ArrowDecoder(pa.schema({"values": kind}), max_batch_rows=self._max_batch_rows, text=self._text)
        dictionary.add(decoder.decode(values, what), encapsulated.size, is_delta=read.is_delta)

    def decode_batch(self, encapsulated: pa.Buffer, *, sequence: int) -> pa.RecordBatch:
        """Decode a batch to `schema` and validate it fully; raise ProtocolError or LimitError."""
        batch = self._decoder.decode_batch(encapsulated, sequence=sequence)
        self._messages = 0
        if not self._kinds:
            return batch
        room = _Room(sequence, self._limit)
        with malformed_as(f"batch {sequence} does not fit its dictionaries"):
            columns = self._all_decoded(batch.columns, self._columns, room)
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _all_decoded(
        self, arrays: Sequence[pa.Array], columns: Sequence[_Encoded | None], room: _Room
    ) -> list[pa.Array]:
        return [
            array if column is None else self._decoded(array, column, room)
            for array, column in zip(arrays, columns, strict=True)
        ]

    def _decoded(self, array: pa.Array, column: _Encoded, room: _Room) -> pa.Array:
        if column.dictionary_id is None:
            inside = self._all_decoded(arrays_inside(array), column.inside, room)
            # A null value in a dictionary can make a key of a map null, and Arrow then aborts the process.
            if pa.types.is_map(column.decoded) and inside[0].null_count:
                raise ValueError("a key of a map is null")
            return with_arrays_inside(array, column.decoded, inside)
        dictionary = self._dictionaries.get(column.dictionary_id)
        if dictionary is None:
            # The dictionary may arrive later, as long as the columns that use it have only nulls.
            if array.null_count < len(array):
                raise ValueError(f"dictionary {column.dictionary_id} has not arrived")
            dictionary = Dictionary(column.decoded)
        room.take(dictionary.decoded_bytes(array))
        return dictionary.decoded(array)

    def _check_held(self, what: str, more_bytes: int, replaced: Dictionary | None) -> None:
        held_bytes = sum(each.held_bytes for each in self._dictionaries.values() if each is not replaced)
        if held_bytes + more_bytes > self._limit.limit_bytes:
            raise LimitError(
                f"{what} brings all dictionaries to {held_bytes + more_bytes} bytes, the limit is "
                f"{self._limit.limit_bytes}: send smaller dictionaries, or raise {self._limit.setting}"
            )

    def _encoded(self, kind: pa.DataType, ids: Iterator[int], name: str) -> _Encoded | None:
        if pa.types.is_dictionary(kind):
            return self._with_dictionary(kind, ids, name)
        if not has_dictionary(kind):
            return None
        if not (fields := fields_inside(kind)):
            raise ProtocolError(f"column {name!r} has a dictionary inside of {kind}, which is refused: decode it first")
        inside = [self._encoded(field.type, ids, name) for field in fields]
        decoded, indexes = (with_fields_inside(kind, each) for each in _both(fields, inside))
        return _Encoded(decoded, indexes, None, inside)

    def _with_dictionary(self, kind: pa.DataType, ids: Iterator[int], name: str) -> _Encoded:
        if not is_decoded(kind.value_type):
            raise ProtocolError(
                f"column {name!r} is a dictionary of {kind.value_type}, which is refused: decode it first"
            )
        if (number := next(ids, None)) is None:
            raise ProtocolError(f"column {name!r} is dictionary-encoded but has no dictionary")
        # Columns may share a dictionary. Arrow has already refused schemas that give one dictionary two types.
        self._kinds[number] = kind.value_type
        return _Encoded(kind.value_type, kind.index_type, number, [])


def _both(fields: list[pa.Field], encoded: Sequence[_Encoded | None]) -> tuple[list[pa.Field], list[pa.Field]]:
    """Return the fields twice: with decoded types, and with the types on the wire."""
    pairs = list(zip(fields, encoded, strict=True))
    return (
        [field if each is None else field.with_type(each.decoded) for field, each in pairs],
        [field if each is None else field.with_type(each.indexes) for field, each in pairs],
    )
