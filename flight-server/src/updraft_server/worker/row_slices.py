# SPDX-License-Identifier: Apache-2.0
"""Slices of a batch that tell nothing of the rows beside them.

What pyarrow makes of a map for pandas depends on all that the map's array holds, also on what a slice left out: beside
a neighbour's null a function would see floats where stock shows it integers.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa


def slicer(batch: pa.RecordBatch) -> Callable[[int, int], pa.RecordBatch]:
    """Makes slices of the batch, from a first row and a number of rows; copies where a map is among its columns."""
    if any(map(_holds_map, batch.schema.types)):
        return lambda start, rows: pa.concat_batches([batch.slice(start, rows)])
    return batch.slice  # type: ignore[no-any-return]


def slice_by_rows(batch: pa.RecordBatch, max_rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `max_rows`; 0 is no limit."""
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
