# SPDX-License-Identifier: Apache-2.0
"""Size of Arrow data: of its rows alone, also as other implementations send it."""

import pyarrow as pa
import pytest

from updraft.arrow_bytes import data_bytes


def _empty_list_without_offsets() -> pa.Array:
    return pa.Array.from_buffers(pa.list_(pa.string()), 0, [None, None], children=[pa.array([], pa.string())])


def test_an_empty_list_without_offsets_has_next_to_no_bytes() -> None:
    assert data_bytes(pa.record_batch({"x": _empty_list_without_offsets()})) <= 8


def test_a_list_of_lists_of_which_the_inner_has_no_offsets_is_counted() -> None:
    offsets = pa.array([0, 0, 0], pa.int32()).buffers()[1]
    inner = _empty_list_without_offsets()
    outer = pa.Array.from_buffers(pa.list_(inner.type), 2, [None, offsets], children=[inner])
    assert data_bytes(pa.table({"x": outer})) >= 12


NUMBERS = pa.array(range(1000), pa.int64())
EACH_ALONE = pa.array(range(1001), pa.int32())
OFFSETS_BYTES = 4 * 5


@pytest.mark.parametrize(
    ("column", "of_five_rows_bytes"),
    [
        (NUMBERS, 40),
        (pa.ListArray.from_arrays(EACH_ALONE, NUMBERS), 40 + OFFSETS_BYTES),
        (pa.MapArray.from_arrays(EACH_ALONE, NUMBERS, NUMBERS), 80 + OFFSETS_BYTES),
        (pa.StructArray.from_arrays([NUMBERS, pa.ListArray.from_arrays(EACH_ALONE, NUMBERS)], ["a", "b"]), 100),
        (pa.FixedSizeListArray.from_arrays(NUMBERS, 1), 40),
    ],
    ids=["flat", "list", "map", "struct", "fixed_size_list"],
)
def test_a_slice_counts_its_own_rows(column: pa.Array, of_five_rows_bytes: int) -> None:
    batch = pa.record_batch({"x": column})
    assert data_bytes(batch.slice(10, 5)) == of_five_rows_bytes
    assert data_bytes(pa.Table.from_batches([batch, batch]).slice(998, 5)) == of_five_rows_bytes
