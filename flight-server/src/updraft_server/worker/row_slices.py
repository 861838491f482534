# SPDX-License-Identifier: Apache-2.0
"""Slices of a batch that reveal nothing about the rows beside them.

When pyarrow converts a map for pandas, the result depends on the whole array, including rows outside a slice: if a
neighbouring row had a null, a function would see floats where stock PySpark shows it integers.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa


def slicer(batch: pa.RecordBatch) -> Callable[[int, int], pa.RecordBatch]:
    """Return a function that slices the batch by first row and number of rows; it copies if a column holds maps."""
    if any(map(_holds_map, batch.schema.types)):
        return lambda start, rows: pa.concat_batches([batch.slice(start, rows)])
    return batch.slice  # type: ignore[no-any-return]


def slice_by_rows(batch: pa.RecordBatch, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `max_rows` rows; 0 means no limit."""
    if not max_rows or batch.num_rows <= max_rows:
        yield batch
        return
    rows_from = slicer(batch)
    for start in range(0, batch.num_rows, max_rows):
        yield rows_from(start, min(max_rows, batch.num_rows - start))


def _holds_map(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _holds_map(data_type.storage_type)
    children = [data_type.field(index).type for index in range(data_type.num_fields)]
    return pa.types.is_map(data_type) or any(map(_holds_map, children))
