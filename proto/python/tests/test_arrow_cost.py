# SPDX-License-Identifier: Apache-2.0
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest

from updraft.arrow_decoder import ArrowDecoder, encapsulated_message
from updraft.errors import LimitError, ProtocolError

ROWS = 1000


def fixed_lists(values: pa.Array, size: int) -> pa.Array:
    return pa.Array.from_buffers(pa.list_(values.type, size), len(values) // size, [None], children=[values])


def message(data: pa.RecordBatch | pa.Schema) -> pa.Buffer:
    parsed = pa.ipc.read_message(data.serialize())
    body = memoryview(parsed.body).cast("B") if parsed.body is not None else memoryview(b"")
    return encapsulated_message(memoryview(parsed.metadata).cast("B"), body)


def decoder(schema: pa.Schema, max_batch_rows: int = 1 << 20) -> ArrowDecoder:
    return ArrowDecoder.announced_by(message(schema), "the first message", max_batch_rows=max_batch_rows)


def pack(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


COSTS: dict[str, tuple[Callable[[], pa.Array], int]] = {
    "null": (lambda: pa.nulls(ROWS), 4 * ROWS),
    "boolean": (lambda: pa.array([True] * ROWS), 0),
    "list of boolean": (lambda: pa.array([[True] * ROWS]), 0),
    "fixed-size list of size 0": (lambda: pa.array([[]] * ROWS, pa.list_(pa.int64(), 0)), 4 * ROWS),
    "sparse union with struct without fields": (
        lambda: pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [pa.array([{}] * ROWS, pa.struct([]))]),
        16 * ROWS,
    ),
    "struct of null": (lambda: pa.StructArray.from_arrays([pa.nulls(ROWS)] * 3, list("abc")), 3 * 4 * ROWS),
    "struct without fields": (lambda: pa.array([{}] * ROWS, pa.struct([])), 4 * ROWS),
    "binary of width 0": (lambda: pa.array([b""] * ROWS, pa.binary(0)), 4 * ROWS),
    "list of null": (lambda: pa.array([[None] * ROWS]), 16 * ROWS),
    "fixed-size list of null": (lambda: fixed_lists(pa.nulls(100 * ROWS), 100), 100 * 16 * ROWS),
    "fixed-size list of those": (lambda: fixed_lists(fixed_lists(pa.nulls(100 * ROWS), 10), 10), 100 * 16 * ROWS),
    "map to null": (lambda: pa.array([[(1, None)] * ROWS], pa.map_(pa.int32(), pa.null())), 16 * ROWS),
    "numbers": (lambda: pa.array(range(ROWS)), 0),
    "texts": (lambda: pa.array([""] * ROWS), 0),
    "lists of numbers": (lambda: pa.array([[1, 2]] * ROWS), 0),
}


@pytest.mark.parametrize("kind", COSTS)
def test_the_cost_beyond_the_bytes_is_known_before_the_batch_is_decoded(kind: str) -> None:
    make, cost_bytes = COSTS[kind]
    # The column before it shows that the cost is that of the right array.
    batch = pa.record_batch({"n": pa.nulls(len(make()), pa.int64()), "x": make()})
    assert decoder(batch.schema).claims(message(batch), sequence=1).unbacked_bytes == cost_bytes


def test_more_values_without_bytes_than_rows_are_allowed_are_refused() -> None:
    batch = pa.record_batch({"x": fixed_lists(pa.nulls(1 << 30), 1 << 20)})
    with pytest.raises(LimitError, match="batch 1 has 1073741824 values in one array that takes no memory in Arrow"):
        decoder(batch.schema).decode_batch(message(batch), sequence=1)


def test_more_columns_than_any_table_has_are_refused() -> None:
    with pytest.raises(LimitError, match="40000 columns and fields of columns, the limit is 32768: send fewer columns"):
        decoder(pa.schema([(f"c{index}", pa.int8()) for index in range(40_000)]))


@pytest.mark.parametrize(("kind", "value_bytes"), [("boolean", 4), ("list of boolean", 6), ("null", 4)])
def test_the_widest_column_without_whole_bytes_says_what_its_conversion_takes(kind: str, value_bytes: int) -> None:
    batch = pa.record_batch({"x": COSTS[kind][0](), "y": COSTS[kind][0]()})
    assert decoder(batch.schema).claims(message(batch), sequence=1).encoding_bytes == value_bytes * ROWS


def test_columns_that_share_their_bytes_are_refused() -> None:
    batch = pa.record_batch({f"c{index}": pa.array(range(ROWS)) for index in range(10)})
    parsed = pa.ipc.read_message(batch.serialize())
    body = parsed.body.to_pybytes()[: 8 * ROWS]
    metadata = bytearray(parsed.metadata.to_pybytes().replace(pack(parsed.body.size), pack(len(body))))
    # Each column has an empty buffer for nulls and one for values. All columns get the first one's values.
    first = metadata.index(pack(0, 0, 0, len(body)))
    for index in range(10):
        metadata[first + 32 * index : first + 32 * (index + 1)] = pack(0, 0, 0, len(body))
    sent = encapsulated_message(memoryview(bytes(metadata)), memoryview(body))
    assert pa.ipc.read_record_batch(pa.ipc.read_message(sent), batch.schema).nbytes == 10 * len(body)
    with pytest.raises(ProtocolError, match="batch 1 has buffers of 80000 bytes in a body of 8000"):
        decoder(batch.schema).decode_batch(sent, sequence=1)


def test_names_of_megabytes_are_refused_also_as_a_sum_over_nested_fields() -> None:
    with pytest.raises(LimitError, match="the names of the columns take 5242880 bytes"):
        decoder(pa.schema({"n" * (5 << 20): pa.int8()}))
    fields = [pa.field(f"{index:04}", pa.int8()) for index in range(1000)]
    with pytest.raises(LimitError, match="send shorter names"):
        decoder(pa.schema({"n" * (64 << 10): pa.struct(fields)}))
