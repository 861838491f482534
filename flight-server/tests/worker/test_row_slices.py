# SPDX-License-Identifier: Apache-2.0
"""Slices of a batch have its rows, each once, and tell nothing of those beside them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft_server.worker.row_slices import slice_by_rows, slicer

MAP = pa.map_(pa.string(), pa.int32())
NULL_BESIDE_NUMBER = pa.array([{"of the first": None}, {"of the second": 7}], MAP)


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(range(start, start + count), pa.int64())})


@given(st.integers(0, 100), st.integers(0, 30))
def test_slices_have_at_most_as_many_rows_as_allowed(count: int, limit: int) -> None:
    slices = list(slice_by_rows(rows(0, count), limit))
    assert sum(part.num_rows for part in slices) == count
    assert all(part.num_rows <= (limit or count) for part in slices)


@pytest.mark.parametrize(
    "column",
    [
        NULL_BESIDE_NUMBER,
        pa.StructArray.from_arrays([NULL_BESIDE_NUMBER], ["field"]),
        pa.ListArray.from_arrays([0, 1, 2], NULL_BESIDE_NUMBER),
        pa.ExtensionArray.from_storage(pa.opaque(MAP, "named", "elsewhere"), NULL_BESIDE_NUMBER),
    ],
    ids=["map", "struct", "list", "extension"],
)
def test_a_map_is_what_it_is_without_its_neighbours(column: pa.Array) -> None:
    batch = pa.record_batch({"x": column})
    alone = pa.record_batch({"x": pa.array(column.to_pylist()[1:], column.type)})
    for second in (slicer(batch)(1, 1), list(slice_by_rows(batch, 1))[1]):
        assert second.equals(alone)
        assert repr(second.to_pandas()["x"][0]) == repr(alone.to_pandas()["x"][0])


def test_slices_without_maps_are_not_copied() -> None:
    batch = rows(0, 10)
    allocated = pa.total_allocated_bytes()
    slices = list(slice_by_rows(batch, 3))
    assert (len(slices), pa.total_allocated_bytes()) == (4, allocated)
