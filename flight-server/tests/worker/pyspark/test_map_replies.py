# SPDX-License-Identifier: Apache-2.0
"""Map results get types that Spark reads and keep their values; invalid Arrow is refused before it is read."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest

from updraft.arrow_layout import ArrowLayout, Text
from updraft.errors import UpdraftError, UserError
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.streams import MapReplies

_needs_views = pytest.mark.skipif(minor_version(pyspark.__version__) < (4, 3), reason="this Spark reads no views")

_LONG = "longer than what a view holds itself"
_TEXTS = [_LONG, None, "short", "", _LONG]
_LISTS = [[_LONG, None], None, [], ["short"], [_LONG]]
_MAPS = [{_LONG: "a"}, None, {}, {"b": None}, {"c": _LONG}]
_STRUCTS = [{"f": _LONG, "g": 1}, None, {"f": None, "g": None}, {"f": "short", "g": 2}, {"f": _LONG, "g": 3}]


class _Recorder:
    """Stand-in for the exchange: keeps replies."""

    def __init__(self, max_bytes_per_reply: int = 1 << 20) -> None:
        self.max_bytes_per_reply = max_bytes_per_reply
        self.max_records_per_reply = 0
        self.replies: list[pa.RecordBatch] = []

    def reply(self, batch: pa.RecordBatch, *, sequence: int, row_ends: Sequence[int] = ()) -> None:
        assert sequence == len(self.replies) + 1
        assert not row_ends
        self.replies.append(batch)

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error


class _Label(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Unhashable extension type, as functions may define one."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.label")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _serialized: bytes) -> "_Label":
        return cls(storage)


def _label(storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(_Label(storage.type), storage)


def _batch(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], ["c"])


def _sent(column: pa.Array) -> pa.Array:
    """Return the column of the only reply."""
    recorder = _Recorder()
    MapReplies(recorder).add(_batch(column))
    (reply,) = recorder.replies
    ArrowLayout(reply.schema, Text.BYTES).check(reply)
    return reply.column(0)


_VIEWS: Mapping[str, tuple[Callable[[], pa.Array], pa.DataType]] = {
    "text": (lambda: pa.array(_TEXTS, pa.string_view()), pa.large_string()),
    "binary": (lambda: pa.array(_TEXTS).cast(pa.binary()).cast(pa.binary_view()), pa.large_binary()),
    "in lists": (lambda: pa.array(_LISTS, pa.list_(pa.string_view())), pa.list_(pa.large_string())),
    "in maps": (
        lambda: pa.array(_MAPS, pa.map_(pa.string_view(), pa.string_view())),
        pa.map_(pa.large_string(), pa.large_string()),
    ),
    "in structs": (
        lambda: pa.array(_STRUCTS, pa.struct([("f", pa.string_view()), ("g", pa.int8())])),
        pa.struct([("f", pa.large_string()), ("g", pa.int8())]),
    ),
    "of lists": (lambda: pa.array(_LISTS, pa.list_view(pa.string())), pa.list_(pa.string())),
    "of lists of text": (lambda: pa.array(_LISTS, pa.list_view(pa.string_view())), pa.list_(pa.large_string())),
    "in an extension": (lambda: _label(pa.array(_TEXTS, pa.string_view())), pa.large_string()),
    "in a dictionary": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0, 1]), pa.array(_TEXTS[:2], pa.string_view())),
        pa.int64(),
    ),
}


@_needs_views
@pytest.mark.parametrize("rows", [slice(None), slice(1, 4), slice(3, 5), slice(2, 2)], ids=str)
@pytest.mark.parametrize("name", _VIEWS)
def test_views_become_columns_with_the_same_values(name: str, rows: slice) -> None:
    make, expected = _VIEWS[name]
    column = make()[rows]
    sent = _sent(column)
    assert sent.type == expected
    values = column.indices if isinstance(column, pa.DictionaryArray) else column
    assert sent.to_pylist() == values.to_pylist()


@_needs_views
def test_text_keeps_its_bytes_in_any_encoding() -> None:
    column = pa.array([b"M\xfcller"], pa.binary_view()).view(pa.string_view())
    assert _sent(column).view(pa.large_binary()).to_pylist() == [b"M\xfcller"]


@_needs_views
def test_list_views_may_overlap_and_have_any_order() -> None:
    items = pa.array(["a", "b", "c"])
    column = pa.ListViewArray.from_arrays(pa.array([1, 0, 2], pa.int32()), pa.array([2, 3, 0], pa.int32()), items)
    assert _sent(column).to_pylist() == [["b", "c"], ["a", "b", "c"], []]


@_needs_views
def test_values_behind_a_null_list_or_struct_are_dropped() -> None:
    views = pa.array(["a", "b", "c"], pa.string_view())
    offsets = pa.py_buffer(struct.pack("<3i", 0, 2, 3))
    lists = pa.Array.from_buffers(pa.list_(pa.string_view()), 2, [pa.py_buffer(b"\2"), offsets], children=[views])
    assert _sent(lists).to_pylist() == [None, ["c"]]
    structs = pa.StructArray.from_arrays([views], ["f"], mask=pa.array([True, False, False]))
    assert _sent(structs).to_pylist() == [None, {"f": "b"}, {"f": "c"}]


@_needs_views
@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_view(pa.string())], ids=str)
def test_a_large_batch_of_views_is_split_into_small_replies(kind: pa.DataType) -> None:
    values = [f"{row:050}" for row in range(1000)]
    column = pa.array(values if kind == pa.string_view() else [[value] for value in values], kind)
    recorder = _Recorder(max_bytes_per_reply=10_000)
    MapReplies(recorder).add(_batch(column))
    assert [value for reply in recorder.replies for value in reply.column(0).to_pylist()] == column.to_pylist()
    assert max(map(pa.ipc.get_record_batch_size, recorder.replies)) <= 10_000


@_needs_views
def test_a_second_batch_of_another_type_is_refused_even_if_both_are_sent_alike() -> None:
    replies = MapReplies(_Recorder())
    replies.add(_batch(pa.array(_TEXTS, pa.string_view())))
    with pytest.raises(pa.ArrowInvalid, match="different schema"):
        replies.add(_batch(pa.array(_TEXTS, pa.large_string())))


def test_a_dictionary_is_sent_as_its_indices() -> None:
    column = pa.array(["a", None, "a", "b"]).dictionary_encode()
    assert _sent(column).equals(pa.array([0, None, 0, 1], pa.int32()))
    lists = pa.ListArray.from_arrays([0, 1, 4], column)
    assert _sent(lists[1:]).equals(pa.array([[None, 0, 1]], pa.list_(pa.int32())))


def test_an_extension_type_is_sent_as_its_storage() -> None:
    column = pa.ListArray.from_arrays([0, 2, 3], _label(pa.array(["a", None, "b"])))
    assert _sent(column).equals(pa.array([["a", None], ["b"]]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None]),
        pa.array(_STRUCTS, pa.struct([("f", pa.large_string()), ("g", pa.int8())])),
        pa.array(_MAPS, pa.map_(pa.string(), pa.large_string(), keys_sorted=True)),
        pa.array([["a"], None], pa.large_list(pa.string_view())),
        pc.run_end_encode(pa.array(["a", "a"])),
    ],
    ids=lambda column: str(column.type),
)
def test_batches_of_other_types_are_sent_as_they_are(column: pa.Array) -> None:
    batch = _batch(column)
    recorder = _Recorder()
    MapReplies(recorder).add(batch)
    assert recorder.replies[0] is batch


def _view(size: int, buffer: int, offset: int) -> pa.Array:
    """Return two unchecked views of the same place."""
    view = struct.pack("<i4sii", size, b"long", buffer, offset)
    return pa.Array.from_buffers(pa.string_view(), 2, [None, pa.py_buffer(view * 2), pa.py_buffer(b"long enough" * 4)])


def _list_view(offset: int, size: int) -> pa.Array:
    buffers = [None, pa.py_buffer(struct.pack("<i", offset)), pa.py_buffer(struct.pack("<i", size))]
    return pa.Array.from_buffers(pa.list_view(pa.string()), 1, buffers, children=[pa.array(["a", "b"])])


def _wild_views() -> Mapping[str, pa.Array]:
    views = {
        "beyond its buffer": _view(20, 0, 30),
        "far beyond its buffer": _view(20, 0, 1 << 30),
        "before its buffer": _view(20, 0, -1),
        "of a missing buffer": _view(20, 1, 0),
        "of a negative buffer": _view(20, -1, 0),
        "of negative size": _view(-1, 0, 0),
        "of a list beyond the items": _list_view(1, 2),
        "of a list before the items": _list_view(-1, 1),
        "of a list of negative size": _list_view(0, -1),
    }
    texts = views["beyond its buffer"]
    offsets = pa.py_buffer(struct.pack("<2i", 0, 2))
    entries = pa.StructArray.from_arrays(
        [pa.array(["k", "l"]), texts],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", texts.type)],
    )
    return {
        **views,
        "in a list": pa.Array.from_buffers(pa.list_(texts.type), 1, [None, offsets], children=[texts]),
        "in a map": pa.Array.from_buffers(pa.map_(pa.string(), texts.type), 1, [None, offsets], children=[entries]),
        "in a struct": pa.StructArray.from_arrays([texts], ["f"]),
        "in an extension": _label(texts),
        "in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), texts),
    }


@_needs_views
@pytest.mark.parametrize("name", _wild_views())
def test_a_view_outside_of_its_buffers_is_refused_unread(name: str) -> None:
    recorder = _Recorder()
    with pytest.raises(UserError, match="not valid Arrow"):
        MapReplies(recorder).add(_batch(_wild_views()[name]))
    assert not recorder.replies


def test_an_index_outside_of_its_dictionary_is_refused() -> None:
    indices = [None, pa.py_buffer(b"\0\7")]
    column = pa.DictionaryArray.from_buffers(pa.dictionary(pa.int8(), pa.string()), 2, indices, pa.array(["a", "b"]))
    with pytest.raises(UserError, match="not valid Arrow"):
        MapReplies(_Recorder()).add(_batch(column))
