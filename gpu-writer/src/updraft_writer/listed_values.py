# SPDX-License-Identifier: Apache-2.0
"""Positions of the booleans in lists. Each takes only a bit in a batch, but several bytes while it is encoded.

A row may have any number of them, so their cost decides where row groups are cut.
"""

from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_BYTES_PER_BOOLEAN = 6
"""Cost of a boolean in a list while it is encoded; `updraft.arrow_cost` uses the same number."""


class ListedBooleans:
    """Booleans in the lists of a batch. The batch must be complete, as received, not a slice."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        rows = pa.arange(0, batch.num_rows + 1, 1)
        self._ends = [ends for column in batch.columns for ends in _ends(column, rows, is_listed=False)]
        self._rows: int = batch.num_rows

    def rows_within(self, start: int, limit_bytes: int) -> int:
        """Count the rows from `start` that cost at most `limit_bytes` in each column; at least one if any is left."""
        stop: int = self._rows
        for ends in self._ends:
            stop = _last_row(ends, ends[start].as_py() + limit_bytes // _BYTES_PER_BOOLEAN, start, stop)
        return max(stop - start, min(1, self._rows - start))

    def cost_bytes(self, start: int, rows: int) -> int:
        """Return what `rows` rows from `start` cost in the most expensive column."""
        counts = (int(ends[start + rows].as_py() - ends[start].as_py()) for ends in self._ends)
        return _BYTES_PER_BOOLEAN * max(counts, default=0)


def _last_row(ends: pa.Array, most: int, start: int, stop: int) -> int:
    """Return the last row, from `start` to `stop`, that has at most `most` values before it."""
    return bisect_right(range(stop + 1), most, lo=start, key=lambda row: ends[row].as_py()) - 1


def _ends(array: pa.Array, rows: pa.Array, *, is_listed: bool) -> Iterator[pa.Array]:
    """Yield an array for each leaf of booleans in lists: how many of its values come before each of these rows."""
    match array:
        case pa.ExtensionArray():
            yield from _ends(array.storage, rows, is_listed=is_listed)
        case pa.MapArray():
            below = array.offsets.cast(pa.int64()).take(rows)
            for values in (array.keys, array.items):
                yield from _ends(values, below, is_listed=True)
        case pa.ListArray() | pa.LargeListArray():
            yield from _ends(array.values, array.offsets.cast(pa.int64()).take(rows), is_listed=True)
        case pa.FixedSizeListArray():
            yield from _ends(array.values, pc.multiply(rows, array.type.list_size), is_listed=True)
        case pa.StructArray():
            for index in range(array.type.num_fields):
                yield from _ends(array.field(index), rows, is_listed=is_listed)
        case pa.BooleanArray() if is_listed:
            yield rows
