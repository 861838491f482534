# SPDX-License-Identifier: Apache-2.0
"""Lists without rows and without offsets, as Arrow for Java before 19 sends them."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from updraft.nested_arrays import with_offsets

INTEGERS = pa.list_(pa.int64())
HAVE_LISTS = [
    INTEGERS,
    pa.large_list(pa.string()),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(INTEGERS),
    pa.struct({"field": INTEGERS}),
    pa.map_(pa.string(), INTEGERS),
    pa.list_(INTEGERS, 3),
    pa.opaque(INTEGERS, "named", "elsewhere"),
]


def without_offsets(data_type: pa.DataType) -> pa.Array:
    """Return an array without rows, in which every buffer is empty."""
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, without_offsets(data_type.storage_type))
    children = [without_offsets(data_type.field(index).type) for index in range(data_type.num_fields)]
    buffers = [None, *[pa.py_buffer(b"")] * (data_type.num_buffers - 1)]
    return pa.Array.from_buffers(data_type, 0, buffers, children=children)


@pytest.mark.parametrize("data_type", HAVE_LISTS, ids=str)
def test_a_list_without_offsets_gets_them(data_type: pa.DataType) -> None:
    outer = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), without_offsets(data_type))
    batch = with_offsets(pa.record_batch({"x": outer}))
    batch.validate(full=True)
    assert with_offsets(batch) is batch
    assert batch.column(0).to_pandas().map(len).tolist() == [0, 0]


@pytest.mark.parametrize("data_type", [*HAVE_LISTS, pa.int64(), pa.string()], ids=str)
def test_what_has_its_offsets_is_not_copied(data_type: pa.DataType) -> None:
    batch = pa.record_batch({"x": pa.array([], data_type)})
    assert with_offsets(batch) is batch


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_a_list_without_rows_begins_where_its_values_do(kind: Callable[[pa.DataType], pa.DataType]) -> None:
    """Arrow's validation accepts any offset there, but flattening the array crashes the process."""
    width = 4 if kind is pa.list_ else 8
    offsets = pa.py_buffer((0x1FFFFFFF).to_bytes(width, "little"))
    inner = pa.Array.from_buffers(kind(pa.int64()), 0, [None, offsets], children=[pa.array([], pa.int64())])
    outer = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), inner)
    outer.validate(full=True)
    [column] = with_offsets(pa.record_batch({"x": outer})).columns
    assert column.flatten().flatten().to_pylist() == []
