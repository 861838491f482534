# SPDX-License-Identifier: Apache-2.0
"""Short ways between a struct column and a batch of its fields, and to some of a batch's columns.

PySpark takes these ways field by field, for every group and for every row of a table function. `install` puts in their
place what Arrow does at once with the same result.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def install(conversion: Any) -> None:
    """Put the short ways into PySpark's module `pyspark.sql.conversion`."""
    for short in (flatten_struct, wrap_struct, select_columns):
        # Not every version goes all of these ways.
        if hasattr(conversion.ArrowBatchTransformer, short.__name__):
            setattr(conversion.ArrowBatchTransformer, short.__name__, staticmethod(short))


def flatten_struct(batch: pa.RecordBatch, column_index: int = 0) -> pa.RecordBatch:
    """The fields of a struct column as columns; no rows where it has no fields, as PySpark has it."""
    struct = batch.column(column_index)
    return pa.RecordBatch.from_struct_array(struct) if struct.type.num_fields else pa.RecordBatch.from_arrays([], [])


def wrap_struct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns as the fields of one struct column `_0`; without any, what PySpark makes of that."""
    struct = batch.to_struct_array() if batch.num_columns else pa.array([{}] * batch.num_rows)
    return pa.RecordBatch.from_arrays([struct], ["_0"])


def select_columns(batch: pa.RecordBatch, column_indices: Sequence[int]) -> pa.RecordBatch:
    """Some of the columns, nullable and without the metadata of their fields."""
    names = batch.schema.names
    return pa.RecordBatch.from_arrays([batch.column(i) for i in column_indices], [names[i] for i in column_indices])
