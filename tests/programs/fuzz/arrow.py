# SPDX-License-Identifier: Apache-2.0
"""Arrow messages in the form that the Python services accept: batches of one wide schema, and of random schemas."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

import pyarrow as pa

from tests.programs.fuzz.target import Pieces, mutated

_BATCH = pa.RecordBatch.from_pydict(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": pa.array(["one", None, "dreißig"]),
        "bytes": pa.array([b"", b"\x00", None], pa.large_binary()),
        "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        "struct": pa.array([{"a": "x", "b": [0.5]}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int16())),
        "decimal": pa.array([1, None, 2], pa.decimal128(20, 2)),
        "flag": pa.array([True, None, False]),
    }
)
_COLORS = ["red", None, "a color with a name that is longer than a view", "green"]
_CODED = [
    pa.RecordBatch.from_pydict(
        {
            "color": pa.array(_COLORS[:colors]).dictionary_encode(),
            "view": pa.DictionaryArray.from_arrays(range(colors), pa.array(_COLORS[:colors], pa.string_view())),
            "number": pa.array([3, None, 1, 2][:colors]).dictionary_encode(),
            "list": pa.ListArray.from_arrays([0] * colors + [colors], pa.array(_COLORS[:colors]).dictionary_encode()),
            "map": pa.MapArray.from_arrays(
                [0, *range(colors)], pa.array(["k"] * colors).dictionary_encode(), pa.array(range(colors))
            ),
        }
    )
    for colors in (2, 4)
]
_LEAVES: Sequence[pa.DataType] = (
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.float32(),
    pa.string(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary(0),
    pa.binary(3),
    pa.decimal128(38, 10),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
)
_MOST_DEPTH = 5
_MOST_ROWS = 8


def pieces_of(batch: pa.RecordBatch) -> Pieces:
    """Return the header of the schema, and the header and body of the batch."""
    schema, message = pa.ipc.read_message(batch.schema.serialize()), pa.ipc.read_message(batch.serialize())
    return [schema.metadata.to_pybytes(), message.metadata.to_pybytes(), message.body.to_pybytes()]


def changed_batch(chance: random.Random) -> Pieces:
    """Return a schema and a batch; usually one of the headers or the body is changed."""
    batch = _BATCH if chance.random() < 0.5 else random_batch(chance)
    pieces = pieces_of(batch)
    if chance.random() < 0.9:
        changed = chance.choice((0, 1, 1, 1, 2))
        pieces[changed] = mutated(pieces[changed], chance)
    return pieces


def changed_dictionaries(chance: random.Random) -> Pieces:
    """Return the headers and bodies of a schema, dictionaries and batches; usually one of them is changed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _CODED[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as out:
        for batch in _CODED:
            out.write_batch(batch)
    schema, *messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    pieces = [schema.metadata.to_pybytes()]
    for message in messages:
        pieces += [message.metadata.to_pybytes(), message.body.to_pybytes()]
    if chance.random() < 0.9:
        changed = chance.randrange(len(pieces))
        pieces[changed] = mutated(pieces[changed], chance)
    return pieces


def random_batch(chance: random.Random) -> pa.RecordBatch:
    """Return a few rows of randomly nested types, in which all values are null or empty."""
    names = [chance.choice(("a", "", "a.b", "ü" * 40)) + str(column) for column in range(chance.randrange(1, 4))]
    rows = chance.randrange(_MOST_ROWS + 1)
    return pa.RecordBatch.from_arrays([_random_column(chance, rows) for _ in names], names)


def _random_column(chance: random.Random, rows: int) -> pa.Array:
    while True:
        column = pa.nulls(rows, _random_type(chance, _MOST_DEPTH))
        # Arrow produces some invalid batches, such as a run-end-encoded column with nulls below a list.
        with contextlib.suppress(pa.ArrowInvalid):
            column.validate()
            return column


def _random_type(chance: random.Random, depth: int) -> pa.DataType:
    if depth == 0 or chance.random() < 0.5:
        return chance.choice(_LEAVES)
    below = _random_type(chance, depth - 1)
    makers: Sequence[Callable[[], pa.DataType]] = (
        lambda: pa.list_(below),
        lambda: pa.large_list(below),
        lambda: pa.list_(below, chance.choice((0, 1, 3))),
        lambda: pa.list_view(below),
        lambda: pa.struct([("x", below), ("y", pa.int32())][: chance.randrange(3)]),
        lambda: pa.map_(pa.string(), below),
        lambda: pa.dictionary(pa.int8(), pa.string()),
        lambda: pa.run_end_encoded(pa.int32(), below),
    )
    return chance.choice(makers)()
