# SPDX-License-Identifier: Apache-2.0
"""Dictionary-encoded columns, also from malicious clients."""

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.arrow_decoder import encapsulated_message
from updraft.arrow_layout import Text
from updraft.arrow_metadata import is_dictionary
from updraft.dictionary_decoder import DecodedLimit, DictionaryDecoder
from updraft.errors import LimitError, ProtocolError

TEXTS = ["a", "b", None, "a"]
CODED = pa.array(TEXTS).dictionary_encode()
MIB = 1 << 20
LIMIT = DecodedLimit(16 * MIB, "--max-batch-bytes of the pool")


def encapsulated(message: Any) -> pa.Buffer:
    body = memoryview(message.body).cast("B") if message.body is not None else memoryview(b"")
    return encapsulated_message(memoryview(message.metadata).cast("B"), body)


def stream(batches: Sequence[pa.RecordBatch], **options: Any) -> list[Any]:
    """Return the messages of a stream: its schema, then dictionaries and batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return list(pa.ipc.MessageReader.open_stream(sink.getvalue()))


def announced(schema: Any, limit: DecodedLimit = LIMIT, max_batch_rows: int = 1 << 20) -> DictionaryDecoder:
    return DictionaryDecoder.announced_by(
        encapsulated(schema), "the first message", limit=limit, max_batch_rows=max_batch_rows, text=Text.UTF_8
    )


def taken(decoder: DictionaryDecoder, messages: Iterable[Any]) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    for message in messages:
        sequence = len(batches) + 1
        if is_dictionary(memoryview(message.metadata)):
            decoder.add_dictionary(encapsulated(message), sequence=sequence)
        else:
            batches.append(decoder.decode_batch(encapsulated(message), sequence=sequence))
    return batches


def decoded(batches: Sequence[pa.RecordBatch], **options: Any) -> list[pa.RecordBatch]:
    schema, *rest = stream(batches, **options)
    decoder = announced(schema)
    found = taken(decoder, rest)
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(decoder.schema, check_metadata=True)
    return found


def coded(indexes: Any, values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.DictionaryArray.from_arrays(indexes, values, safe=False)})


VALUES: dict[str, pa.Array] = {
    "text": pa.array(TEXTS),
    "large_text": pa.array(TEXTS, pa.large_string()),
    "text_view": pa.array(["a", "a text that is longer than a view", None, ""], pa.string_view()),
    "binary": pa.array([b"a", None, b"\0\xff", b""]),
    "binary_view": pa.array([b"a", None, b"more bytes than a view has", b""], pa.binary_view()),
    "bytes": pa.array([b"abc", None, b"def", b"abc"], pa.binary(3)),
    "no_bytes": pa.array([b"", None, b"", b""], pa.binary(0)),
    "integers": pa.array([1, None, 3, 1]),
    "booleans": pa.array([True, None, False, True]),
    "decimals": pa.array([1, None, 3, 1]).cast(pa.decimal256(40, 3)),
    "instants": pa.array([1, None, 3, 1], pa.timestamp("us", "UTC")),
    "intervals": pa.array([(1, 2, 3), None, (0, 0, 0), (1, 2, 3)], pa.month_day_nano_interval()),
    "nulls": pa.nulls(4),
}


@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.uint32(), pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_a_column_has_the_values_of_its_dictionary(name: str, index: pa.DataType) -> None:
    (batch,) = decoded([coded(pa.array([3, 0, None, 1, 2, 0], index), VALUES[name])])
    expected = [VALUES[name][i].as_py() if i is not None else None for i in (3, 0, None, 1, 2, 0)]
    assert batch.column(0).type == VALUES[name].type
    assert batch.column(0).to_pylist() == expected


NESTED = {
    "struct": pa.StructArray.from_arrays([CODED, pa.array([1, 2, 3, 4])], ["c", "n"], mask=pa.array([False, True] * 2)),
    "list": pa.ListArray.from_arrays(pa.array([0, 2, None, 4], pa.int32()), CODED),
    "large_list": pa.LargeListArray.from_arrays([0, 4, 4], CODED),
    "fixed_size_list": pa.FixedSizeListArray.from_arrays(CODED, 2),
    "map": pa.MapArray.from_arrays([0, 2, 2], pa.array(["x", "y"]).dictionary_encode(), CODED.slice(0, 2)),
    "list_of_structs": pa.ListArray.from_arrays(
        [0, 1, 4], pa.StructArray.from_arrays([pa.array([1, 2, 3, 4]), CODED], ["n", "c"])
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_dictionaries_inside_of_a_column_are_decoded(name: str) -> None:
    column = NESTED[name]
    (batch,) = decoded([pa.record_batch({"n": [0] * len(column), "x": column})])
    assert "dictionary" not in str(batch.schema)
    assert batch.column("x").to_pylist() == column.to_pylist()


def test_fields_keep_their_metadata_and_say_whether_they_may_be_null() -> None:
    field = pa.field("x", CODED.type, nullable=False, metadata={"who": "me"})
    schema = pa.schema([field], metadata={"what": "this"})
    (batch,) = decoded([pa.record_batch([CODED.drop_null()], schema=schema)])
    assert batch.schema.equals(
        pa.schema([field.with_type(pa.string())], metadata={"what": "this"}), check_metadata=True
    )


@pytest.mark.parametrize("options", [{}, {"emit_dictionary_deltas": True}], ids=["replaced", "deltas"])
@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.int64()], ids=str)
def test_a_dictionary_may_change_between_batches(kind: pa.DataType, options: dict[str, Any]) -> None:
    values = [10**9, 2, 10**12, 4] if kind == pa.int64() else ["a" * 30, "b", "c" * 50, "d"]
    batches = [coded(pa.array([0, number], pa.int8()), pa.array(values[: number + 1], kind)) for number in range(4)]
    assert [batch.column(0).to_pylist() for batch in decoded(batches, **options)] == [
        [values[0], values[number]] for number in range(4)
    ]


def test_each_column_has_its_own_dictionary() -> None:
    batch = pa.record_batch({"x": CODED, "n": [1, 2, 3, 4], "y": pa.array([7, 7, 8, None]).dictionary_encode()})
    (found,) = decoded([batch])
    assert found.to_pydict() == {"x": TEXTS, "n": [1, 2, 3, 4], "y": [7, 7, 8, None]}


def test_a_column_of_nothing_but_nulls_needs_no_dictionary() -> None:
    schema, _, batch = stream([coded(pa.array([None, None], pa.int8()), pa.array(["a"]))])
    assert taken(announced(schema), [batch])[0].column(0).to_pylist() == [None, None]


def test_a_stream_without_dictionaries_is_as_it_was() -> None:
    batch = pa.record_batch({"x": [1], "l": [["a"]]})
    assert decoded([batch]) == [batch]


WRONG_INDEXES = {"beyond": [0, 2], "negative": [0, -1], "far_beyond": [127, 0], "in_nothing": [0]}


@pytest.mark.parametrize("name", WRONG_INDEXES)
@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.int32()], ids=str)
def test_an_index_outside_of_its_dictionary_is_refused(name: str, kind: pa.DataType) -> None:
    values = [] if name == "in_nothing" else [1, 2]
    batch = coded(pa.array(WRONG_INDEXES[name], pa.int8()), pa.array(values, pa.int32()).cast(pa.string()).cast(kind))
    with pytest.raises(ProtocolError, match=r"batch 1 does not fit its dictionaries: Index -?\d+ out of bounds"):
        decoded([batch])


def test_columns_may_share_a_dictionary() -> None:
    schema, dictionary, _, batch = stream([pa.record_batch({"x": CODED, "y": CODED})])
    metadata = bytearray(schema.metadata)
    # The id of the second dictionary is the only number of that size that is 1.
    metadata[metadata.index(struct.pack("<q", 1))] = 0
    decoder = DictionaryDecoder.announced_by(
        encapsulated_message(memoryview(metadata), memoryview(b"")),
        "the first message",
        limit=LIMIT,
        max_batch_rows=100,
        text=Text.UTF_8,
    )
    assert taken(decoder, [dictionary, batch])[0].to_pydict() == {"x": TEXTS, "y": TEXTS}


def test_an_index_below_a_null_is_never_looked_up() -> None:
    indexes = pa.Array.from_buffers(pa.int8(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\x00\x63")])
    assert decoded([coded(indexes, pa.array(["a"]))])[0].column(0).to_pylist() == ["a", None]


def test_a_dictionary_that_never_came_is_named() -> None:
    schema, _, batch = stream([coded(pa.array([0], pa.int8()), pa.array(["a"]))])
    with pytest.raises(ProtocolError, match="batch 1 does not fit its dictionaries: dictionary 0 has not arrived"):
        taken(announced(schema), [batch])


def test_a_dictionary_of_no_column_is_refused() -> None:
    _, dictionary, _ = stream([coded(pa.array([0], pa.int8()), pa.array(["a"]))])
    plain, _ = stream([pa.record_batch({"x": ["a"]})])
    with pytest.raises(ProtocolError, match="a dictionary before batch 1 has the id 0, which no column uses"):
        taken(announced(plain), [dictionary])


def test_a_dictionary_of_other_values_is_refused() -> None:
    schema, _, _ = stream([coded(pa.array([0], pa.int8()), pa.array(["a"]))])
    _, dictionary, _ = stream([coded(pa.array([0], pa.int8()), pa.array([1]))])
    with pytest.raises(ProtocolError, match="a dictionary before batch 1 is not an Arrow batch"):
        taken(announced(schema), [dictionary])


def test_a_compressed_dictionary_is_refused() -> None:
    schema, dictionary, _ = stream([coded(pa.array([0], pa.int8()), pa.array(["a" * 1000]))], compression="zstd")
    with pytest.raises(ProtocolError, match="a dictionary before batch 1 has a compressed body, which is refused"):
        taken(announced(schema), [dictionary])


def test_text_in_a_dictionary_is_utf_8() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(ProtocolError, match="Invalid UTF8"):
        decoded([coded(pa.array([0], pa.int8()), text)])


def test_a_key_of_a_map_is_no_null_of_a_dictionary() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], pa.string()))
    with pytest.raises(ProtocolError, match="batch 1 does not fit its dictionaries: a key of a map is null"):
        decoded([pa.record_batch({"x": pa.MapArray.from_arrays([0, 1], keys, pa.array([1]))})])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(MIB)], ids=str)
def test_a_large_value_in_many_rows_is_refused_before_it_is_written_as_often(kind: pa.DataType) -> None:
    value = b"x" * MIB if pa.types.is_fixed_size_binary(kind) else "x" * MIB
    batch = coded(pa.repeat(pa.scalar(0, pa.int8()), 1_000_000), pa.array([value], kind))
    before = pa.total_allocated_bytes()
    with pytest.raises(
        LimitError,
        match=r"batch 1 has 104\d{10} bytes or more once its dictionaries are decoded, the limit is 16777216: "
        "send smaller batches, or raise --max-batch-bytes of the pool",
    ):
        decoded([batch])
    assert pa.total_allocated_bytes() - before < 64 * MIB


def test_columns_share_the_limit_of_their_batch() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 9, pa.int8()), pa.array(["x" * MIB]))
    assert decoded([pa.record_batch({"x": column})])[0].num_rows == 9
    with pytest.raises(LimitError, match="once its dictionaries are decoded"):
        decoded([pa.record_batch({"x": column, "y": column})])


def test_dictionaries_share_a_limit() -> None:
    columns = {name: pa.array([name * 5 * MIB]).dictionary_encode() for name in "abcd"}
    with pytest.raises(LimitError, match=r"a dictionary before batch 1 brings all dictionaries to 209\d+ bytes"):
        decoded([pa.record_batch(columns)])


def test_a_dictionary_that_takes_the_place_of_another_leaves_its_memory() -> None:
    batches = [coded(pa.array([0], pa.int8()), pa.array([letter * 5 * MIB])) for letter in "abcdefg"]
    assert len(decoded(batches)) == 7


def test_dictionaries_cannot_grow_for_ever() -> None:
    values = ["x" * 5 * MIB, "y" * 5 * MIB, "z" * 6 * MIB]
    batches = [coded(pa.array([0], pa.int8()), pa.array(values[: number + 1])) for number in range(3)]
    with pytest.raises(LimitError, match="a dictionary before batch 3 brings all dictionaries to"):
        decoded(batches, emit_dictionary_deltas=True)


def test_dictionaries_alone_come_to_an_end() -> None:
    schema, dictionary, batch = stream([coded(pa.array([0], pa.int8()), pa.array(["a"]))])
    decoder = announced(schema)
    assert len(taken(decoder, [dictionary] * 16 + [batch] + [dictionary] * 16 + [batch])) == 2
    with pytest.raises(LimitError, match="more than 16 dictionaries came before batch 1: send each once"):
        taken(decoder, [dictionary] * 17)


def test_a_dictionary_has_no_more_rows_than_a_batch() -> None:
    schema, dictionary, _ = stream([coded(pa.array([0], pa.int8()), pa.array(["a", "b", "c"]))])
    with pytest.raises(LimitError, match="a dictionary before batch 1 has 3 rows, the limit is 2"):
        taken(announced(schema, max_batch_rows=2), [dictionary])


REFUSED = {
    "of_structs": (pa.dictionary(pa.int8(), pa.struct({"a": pa.int8()})), "'x' is a dictionary of struct<a: int8>"),
    "of_lists_of_dictionaries": (
        pa.dictionary(pa.int8(), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "'x' is a dictionary of list<",
    ),
    "in_a_union": (pa.dense_union([pa.field("a", CODED.type)]), "'x' has a dictionary inside of dense_union<"),
    "in_runs": (pa.run_end_encoded(pa.int32(), CODED.type), "'x' has a dictionary inside of run_end_encoded<"),
    "in_an_extension": (pa.opaque(CODED.type, "a", "b"), "a dictionary where no column is dictionary-encoded"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_dictionaries_are_refused_by_the_column_s_name(name: str) -> None:
    kind, says = REFUSED[name]
    schema = pa.ipc.read_message(pa.schema({"x": kind}).serialize())
    with pytest.raises(ProtocolError, match=says):
        announced(schema)


def test_one_dictionary_of_two_types_is_refused() -> None:
    columns = {"x": CODED, "y": pa.array([1, 2, 3, 4]).dictionary_encode()}
    metadata = bytearray(pa.ipc.read_message(pa.record_batch(columns).schema.serialize()).metadata)
    # The id 1 of the second column is the only number of that size that is 1.
    place = metadata.index(struct.pack("<q", 1))
    metadata[place] = 0
    with pytest.raises(ProtocolError, match="Conflicting dictionary types for id 0"):
        DictionaryDecoder.announced_by(
            encapsulated_message(memoryview(metadata), memoryview(b"")),
            "the first message",
            limit=LIMIT,
            max_batch_rows=1,
            text=Text.UTF_8,
        )


MESSAGES = stream(
    [
        pa.record_batch({"x": CODED, "l": NESTED["list_of_structs"].take([0, 1, 0, 1])}),
        pa.record_batch(
            {"x": pa.array(["a", "b", "c", "d"]).dictionary_encode(), "l": pa.nulls(4, NESTED["list_of_structs"].type)}
        ),
    ],
    emit_dictionary_deltas=True,
)


@given(st.data(), st.integers(min_value=1, max_value=255))
def test_a_flipped_byte_gives_valid_batches_or_the_client_s_error(data: st.DataObject, flip: int) -> None:
    number = data.draw(st.integers(min_value=0, max_value=len(MESSAGES) - 1))
    messages = [bytearray(encapsulated(message)) for message in MESSAGES]
    position = data.draw(st.integers(min_value=8, max_value=len(messages[number]) - 1))
    messages[number][position] ^= flip
    schema, *rest = [pa.py_buffer(bytes(message)) for message in messages]
    with suppress(ProtocolError, LimitError):
        decoder = DictionaryDecoder.announced_by(
            schema, "the first message", limit=LIMIT, max_batch_rows=100, text=Text.UTF_8
        )
        for message in rest:
            if is_dictionary(memoryview(message)[8:]):
                decoder.add_dictionary(message, sequence=1)
            else:
                decoder.decode_batch(message, sequence=1).validate(full=True)


@given(st.binary(max_size=64))
def test_any_bytes_may_say_whether_they_are_a_dictionary(data: bytes) -> None:
    assert not is_dictionary(memoryview(data)) or data[4:]


def test_only_dictionaries_say_that_they_are() -> None:
    assert [is_dictionary(memoryview(message.metadata)) for message in MESSAGES] == [
        message.type == "dictionary" for message in MESSAGES
    ]
