# SPDX-License-Identifier: Apache-2.0
"""Fast conversion between a struct column and a batch of its fields, and fast selection of columns.

PySpark converts field by field, for every group and for every row of a table function. `install` replaces PySpark's
methods with single Arrow calls that give the same results.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def install(conversion: Any) -> None:
    """Install the fast methods in PySpark's module `pyspark.sql.conversion`."""
    for short in (flatten_struct, wrap_struct, select_columns):
        # A PySpark version may lack some of these methods.
        if hasattr(conversion.ArrowBatchTransformer, short.__name__):
            setattr(conversion.ArrowBatchTransformer, short.__name__, staticmethod(short))


def flatten_struct(batch: pa.RecordBatch, column_index: int = 0) -> pa.RecordBatch:
    """Return the fields of a struct column as columns. Like PySpark, return no rows if the struct has no fields."""
    struct = batch.column(column_index)
    return pa.RecordBatch.from_struct_array(struct) if struct.type.num_fields else pa.RecordBatch.from_arrays([], [])


def wrap_struct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns as fields of one struct column `_0`. Like PySpark, keep the rows if there are no columns."""
    struct = batch.to_struct_array() if batch.num_columns else pa.array([{}] * batch.num_rows)
    return pa.RecordBatch.from_arrays([struct], ["_0"])


def select_columns(batch: pa.RecordBatch, column_indices: Sequence[int]) -> pa.RecordBatch:
    """Return some of the columns, nullable and without the metadata of their fields."""
    names = batch.schema.names
    return pa.RecordBatch.from_arrays([batch.column(i) for i in column_indices], [names[i] for i in column_indices])
