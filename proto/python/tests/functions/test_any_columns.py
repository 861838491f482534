# SPDX-License-Identifier: Apache-2.0
"""Functions of any columns, as a test runs them; that a pool does the same is in tests/contract/test_any_columns.py."""

from typing import Any, cast

import pyarrow as pa
import pytest

from updraft.functions import function
from updraft.testing import batches, call, load


@function
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_columns_are_named_and_lists_become_columns() -> None:
    assert batches(same, {"x": [1, 2], "y": pa.array(["a", None])}).to_pydict() == {"x": [1, 2], "y": ["a", None]}


def test_rows_come_in_batches_of_the_callers_size_to_one_object() -> None:
    @function
    class Numbered:
        def __init__(self) -> None:
            self._batches = 0

        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            self._batches += 1
            return pa.record_batch({"batch": [self._batches] * batch.num_rows})

    loaded = load(Numbered)
    assert loaded.batches({"x": list(range(5))}, batch_rows=2).to_pydict() == {"batch": [1, 1, 2, 2, 3]}
    assert loaded.batches({"x": []}).num_rows == 0


def test_rows_without_columns_are_rows() -> None:
    rows = pa.record_batch([pa.nulls(3)], ["_"]).select([])
    assert batches(same, rows).num_rows == 3


def test_it_is_called_by_no_other_name_and_nothing_else_by_its_own() -> None:
    @function
    def plain(x: int) -> int:
        return x

    with pytest.raises(TypeError, match=r"call\(\) is for a value for each row"):
        call(same, [1])
    with pytest.raises(TypeError, match=r"batches\(\) is for a batch of as many rows"):
        batches(cast(Any, plain), {"x": [1]})
