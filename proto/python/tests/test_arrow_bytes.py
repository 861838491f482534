# SPDX-License-Identifier: Apache-2.0
"""Bytes of Arrow data as other implementations send it."""

import pyarrow as pa

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


def test_a_slice_of_a_flat_column_counts_its_own_rows() -> None:
    batch = pa.record_batch({"x": pa.array(range(1000), pa.int64())})
    assert data_bytes(batch.slice(10, 5)) == 40
