# SPDX-License-Identifier: Apache-2.0
"""Fast conversions between struct columns and batches give the same results as PySpark's own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark
import pytest

from updraft_server.worker.pyspark import struct_columns
from updraft_server.worker.pyspark.adapters import minor_version

if minor_version(pyspark.__version__) < (4, 2):
    pytest.skip("before 4.2 PySpark goes these ways elsewhere", allow_module_level=True)

from pyspark.sql.conversion import ArrowBatchTransformer

_NUMBERS = pa.field("a", pa.int64(), nullable=False)
_TEXTS = pa.field("b", pa.string(), metadata={"comment": "of the field"})
_BATCHES = {
    "some columns": pa.record_batch(
        [[1, 2, 3, 4], ["a", None, "c", "d"]], pa.schema([_NUMBERS, _TEXTS], {"comment": "of the schema"})
    ),
    "two of one name": pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"]),
    "a null where none may be": pa.record_batch([[1, None, 3]], pa.schema([_NUMBERS])),
    "no column": pa.record_batch({"x": [1, 2, 3]}).select([]),
}


@pytest.fixture(params=_BATCHES)
def batch(request: pytest.FixtureRequest) -> pa.RecordBatch:
    return _BATCHES[request.param]


def same(ours: pa.RecordBatch, stock: pa.RecordBatch) -> bool:
    ours.validate(full=True)
    return ours.num_rows == stock.num_rows and bool(ours.equals(stock, check_metadata=True))


@pytest.mark.parametrize("rows", [slice(None), slice(1, 2), slice(0, 1), slice(0, 0)])
def test_columns_become_the_struct_that_pyspark_makes(batch: pa.RecordBatch, rows: slice) -> None:
    assert same(struct_columns.wrap_struct(batch[rows]), ArrowBatchTransformer.wrap_struct(batch[rows]))


@pytest.mark.parametrize("rows", [slice(None), slice(1, 2), slice(0, 1), slice(0, 0)])
@pytest.mark.parametrize("nulls", [None, "first"])
def test_a_struct_becomes_the_columns_that_pyspark_makes(batch: pa.RecordBatch, rows: slice, nulls: Any) -> None:
    is_null = pa.array([nulls == "first" and row == 0 for row in range(batch.num_rows)], pa.bool_())
    fields = list(batch.schema)
    struct = pa.StructArray.from_arrays(batch.columns, fields=fields, mask=is_null) if fields else pa.array([{}] * 3)
    structs = pa.RecordBatch.from_arrays([is_null, struct], ["before", "rows"])[rows]
    assert same(struct_columns.flatten_struct(structs, 1), ArrowBatchTransformer.flatten_struct(structs, 1))


@pytest.mark.skipif(not hasattr(ArrowBatchTransformer, "select_columns"), reason="this PySpark does it elsewhere")
def test_columns_are_chosen_as_pyspark_chooses_them(batch: pa.RecordBatch) -> None:
    chosen = [*range(batch.num_columns)][::-1]
    assert same(struct_columns.select_columns(batch, chosen), ArrowBatchTransformer.select_columns(batch, chosen))
