# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.arrow_decoder import ArrowDecoder, encapsulated_message
from updraft.arrow_layout import Text
from updraft.errors import LimitError, ProtocolError

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.list_(pa.string())})
BATCH = pa.record_batch({"n": [1, None, 3], "s": [["a", None], None, []]}, schema=SCHEMA)


def message(data: Any) -> pa.Buffer:
    """Return a schema or a batch as the two fields of a Flight message."""
    parsed = pa.ipc.read_message(data.serialize())
    body = memoryview(parsed.body).cast("B") if parsed.body is not None else memoryview(b"")
    return encapsulated_message(memoryview(parsed.metadata).cast("B"), body)


def decoder(schema: pa.Schema = SCHEMA, max_batch_rows: int = 100, text: Text = Text.UTF_8) -> ArrowDecoder:
    return ArrowDecoder.announced_by(message(schema), "the first message", max_batch_rows=max_batch_rows, text=text)


def test_a_batch_comes_out_as_it_went_in() -> None:
    assert decoder().decode_batch(message(BATCH), sequence=1).equals(BATCH)


def test_lists_that_were_sent_without_offsets_have_them() -> None:
    nothing = [None, pa.py_buffer(b"")]
    inner = pa.Array.from_buffers(pa.list_(pa.int64()), 0, nothing, children=[pa.array([], pa.int64())])
    batch = pa.record_batch({"x": pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), inner)})
    decoded = decoder(batch.schema).decode_batch(message(batch), sequence=1)
    assert decoded.column(0).to_pandas().map(len).tolist() == [0]


def test_a_body_is_aligned_whatever_the_length_of_the_header() -> None:
    buffer = encapsulated_message(memoryview(b"x" * 13), memoryview(b"body"))
    assert (buffer.address + buffer.size - 4) % 64 == 0


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema({"d": pa.dictionary(pa.int32(), pa.string())}), "'d' is dictionary-encoded"),
        (pa.schema({"l": pa.list_(pa.dictionary(pa.int32(), pa.string()))}), "'l' is dictionary-encoded"),
    ],
)
def test_a_schema_that_cannot_be_taken_is_refused_by_the_column_s_name(schema: pa.Schema, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decoder(schema)


def test_a_batch_in_the_place_of_the_schema_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the first message must be an Arrow schema, not a record batch"):
        ArrowDecoder.announced_by(message(BATCH), "the first message", max_batch_rows=1)


def test_a_name_that_is_no_text_is_refused_below_a_column_too() -> None:
    nested = message(pa.schema({"column": pa.struct({"nested": pa.int64()})}))
    spoiled = pa.py_buffer(nested.to_pybytes().replace(b"nested", b"nest\xff\xff"))
    with pytest.raises(ProtocolError, match="is not an Arrow schema"):
        ArrowDecoder.announced_by(spoiled, "the first message", max_batch_rows=1)


def test_a_time_zone_that_is_no_text_is_refused() -> None:
    nested = message(pa.schema({"column": pa.list_(pa.timestamp("us", "Europe/Berlin"))}))
    spoiled = pa.py_buffer(nested.to_pybytes().replace(b"Europe/Berlin", b"Europe/Berl\xff\xff"))
    with pytest.raises(ProtocolError, match="is not an Arrow schema"):
        ArrowDecoder.announced_by(spoiled, "the first message", max_batch_rows=1)


def test_a_batch_of_another_schema_is_refused() -> None:
    other = pa.record_batch({"n": [1]})
    with pytest.raises(ProtocolError, match="batch 7 has 1 arrays where its schema has 3"):
        decoder().decode_batch(message(other), sequence=7)


def test_more_rows_than_allowed_are_refused() -> None:
    with pytest.raises(LimitError, match="batch 1 has 3 rows, the limit is 2"):
        decoder(max_batch_rows=2).decode_batch(message(BATCH), sequence=1)


@given(st.integers(min_value=8, max_value=message(BATCH).size - 1), st.integers(min_value=1, max_value=255))
def test_a_flipped_byte_gives_a_valid_batch_or_the_client_s_error(position: int, flip: int) -> None:
    data = bytearray(message(BATCH))
    data[position] ^= flip
    with suppress(ProtocolError, LimitError):
        decoder().decode_batch(pa.py_buffer(bytes(data)), sequence=1).validate(full=True)
    with suppress(ProtocolError, LimitError):
        taken = decoder(text=Text.BYTES).decode_batch(pa.py_buffer(bytes(data)), sequence=1)
        texts = taken.column("s").cast(pa.list_(pa.binary()))
        taken.set_column(1, "s", texts).validate(full=True)
