# SPDX-License-Identifier: Apache-2.0
import struct
from collections.abc import Mapping

import pyarrow as pa
import pytest

from updraft.arrow_layout import ArrowLayout, Text


def _texts(data_type: pa.DataType, offsets: tuple[int, int, int], data: bytes = b"M\xfcnn") -> pa.Array:
    """Return two texts between unchecked offsets."""
    layout = "<3q" if data_type == pa.large_string() else "<3i"
    return pa.Array.from_buffers(data_type, 2, [None, pa.py_buffer(struct.pack(layout, *offsets)), pa.py_buffer(data)])


def _views(size: int, buffer: int, offset: int) -> pa.Array:
    """Return two unchecked views of the same place."""
    view = struct.pack("<i4sii", size, b"M\xfcnn", buffer, offset)
    return pa.Array.from_buffers(
        pa.string_view(), 2, [None, pa.py_buffer(view * 2), pa.py_buffer(b"M\xfcnnnnnnnnnnnnnnnnnn")]
    )


def _nested(texts: pa.Array) -> Mapping[str, pa.Array]:
    """Return a column of each type that may contain texts."""
    kind = texts.type
    rows = [None, pa.py_buffer(struct.pack("<2i", 0, 2))]
    large = [None, pa.py_buffer(struct.pack("<2q", 0, 2))]
    views = [None, pa.py_buffer(struct.pack("<i", 0)), pa.py_buffer(struct.pack("<i", 2))]
    large_views = [None, pa.py_buffer(struct.pack("<q", 0)), pa.py_buffer(struct.pack("<q", 2))]
    pairs = pa.StructArray.from_arrays(
        [pa.array([b"k", b"l"]), texts], fields=[pa.field("key", pa.binary(), nullable=False), pa.field("value", kind)]
    )
    indices = [None, pa.py_buffer(b"\0\1")]
    dictionary = pa.dictionary(pa.int8(), kind)
    encoded = pa.run_end_encoded(pa.int32(), kind)
    return {
        "text": texts,
        "struct": pa.StructArray.from_arrays([texts], fields=[pa.field("t", kind, nullable=False)]),
        "list": pa.Array.from_buffers(pa.list_(kind), 1, rows, children=[texts]),
        "large list": pa.Array.from_buffers(pa.large_list(kind), 1, large, children=[texts]),
        "list of fixed size": pa.Array.from_buffers(pa.list_(kind, 2), 1, [None], children=[texts]),
        "list view": pa.Array.from_buffers(pa.list_view(kind), 1, views, children=[texts]),
        "large list view": pa.Array.from_buffers(pa.large_list_view(kind), 1, large_views, children=[texts]),
        "map": pa.Array.from_buffers(pa.map_(pa.binary(), kind), 1, rows, children=[pairs]),
        "dictionary": pa.DictionaryArray.from_buffers(dictionary, 2, indices, texts),
        "run-end encoded": pa.Array.from_buffers(encoded, 2, [None], children=[pa.array([1, 2], pa.int32()), texts]),
        "union": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [texts]),
        "extension": pa.ExtensionArray.from_storage(pa.opaque(kind, "t", "v"), texts),
    }


def _check(column: pa.Array, text: Text) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    ArrowLayout(batch.schema, text).check(batch)


_KINDS = tuple(_nested(pa.array(["a", "b"])))


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("kind", _KINDS)
def test_text_in_any_encoding_is_taken_where_text_is_bytes(kind: str, data_type: pa.DataType) -> None:
    texts = _views(20, 0, 0) if data_type == pa.string_view() else _texts(data_type, (0, 2, 4))
    column = _nested(texts)[kind]
    _check(column, Text.BYTES)
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        _check(column, Text.UTF_8)


@pytest.mark.parametrize(
    "texts",
    [
        _texts(pa.string(), (0, -1, 4)),
        _texts(pa.string(), (0, 3, 2)),
        _texts(pa.large_string(), (0, -1, 4)),
        _views(20, 0, 100),
        _views(20, 1, 0),
        _views(20, -1, 0),
        _views(-1, 0, 0),
    ],
    ids=["before", "decreasing", "large before", "beyond", "no buffer", "before a buffer", "negative"],
)
@pytest.mark.parametrize("kind", _KINDS)
def test_text_that_lies_outside_of_its_buffer_is_refused_whatever_it_may_hold(kind: str, texts: pa.Array) -> None:
    for text in Text:
        with pytest.raises(pa.ArrowInvalid):
            _check(_nested(texts)[kind], text)


class _Unhashable(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Extension type as users define them; only pyarrow's own are hashable."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "test.unhashable")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


@pytest.mark.parametrize("text", Text)
def test_text_of_an_extension_type_that_cannot_be_hashed_is_validated(text: Text) -> None:
    _check(pa.ExtensionArray.from_storage(_Unhashable(), pa.array(["a"])), text)
    with pytest.raises(pa.ArrowInvalid):
        _check(pa.ExtensionArray.from_storage(_Unhashable(), _texts(pa.string(), (0, 3, 2))), text)


@pytest.mark.parametrize("text", Text)
def test_indices_and_offsets_around_the_text_are_validated_too(text: Text) -> None:
    texts = pa.array(["a", "b"])
    indices = [None, pa.py_buffer(b"\0\2")]
    offsets = [None, pa.py_buffer(struct.pack("<3i", 0, -1, 2))]
    for column in (
        pa.DictionaryArray.from_buffers(pa.dictionary(pa.int8(), pa.string()), 2, indices, texts),
        pa.Array.from_buffers(pa.list_(pa.string()), 2, offsets, children=[texts]),
    ):
        with pytest.raises(pa.ArrowInvalid):
            _check(column, text)


@pytest.mark.parametrize("text", Text)
def test_fields_that_are_declared_without_nulls_and_have_some_are_taken(text: Text) -> None:
    schema = pa.schema([pa.field("t", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([None, "b"]), pa.array([1, None])], schema=schema)
    ArrowLayout(schema, text).check(batch)
