# SPDX-License-Identifier: Apache-2.0
"""Functions of any columns, good and bad, for `test_any_columns.py`: its pool imports them too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function


@function
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({name: pc.multiply(batch.column(name), 2) for name in batch.schema.names})


@function(result=lambda schema: pa.schema([pa.field("columns", pa.int64())]))
class Counted:
    def __init__(self) -> None:
        self._batches = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._batches += 1
        return pa.record_batch({"columns": [batch.num_columns * self._batches] * batch.num_rows})


@function
def raises(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError(f"no {batch.schema.names}")


@function
def too_short(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


@function
def a_table(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.table(batch)


@function
def as_dictionary(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"x": batch.column("x").dictionary_encode()})


@function
def in_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.StructArray.from_arrays([batch.column("x").dictionary_encode()], ["a"])})


@function
def empty_at_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([] if batch.column("x")[0].as_py() == 1 else ["x"])


@function
def invalid(batch: pa.RecordBatch) -> pa.RecordBatch:
    no_text = pa.array([b"\xff"] * batch.num_rows)
    return pa.record_batch({"x": pa.Array.from_buffers(pa.string(), batch.num_rows, no_text.buffers())})


@function(result=lambda schema: pa.schema([pa.field("y", pa.int64())]))
def undeclared(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@function
def inconstant(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([f"x_{batch.column('x')[0]}", "y"])


@function(result=lambda schema: schema.field("missing"))
def broken_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@function(result=lambda schema: None)
def no_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
