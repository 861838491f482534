# SPDX-License-Identifier: Apache-2.0
"""Replies of table functions over plain Flight, in which each result carries the number of its row.

`updraft.plain_flight` defines the format of such a reply.
"""

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import LimitError
from updraft.plain_flight import table_schema

_MOST_ROWS = 2**31


class NumberedResults:
    """Replies of one exchange with a table function, in order."""

    def __init__(self, results: pa.Schema) -> None:
        self.schema = table_schema(results, numbered=True)
        self._row = 0

    def reply(self, results: pa.RecordBatch, row_ends: Sequence[int]) -> pa.RecordBatch:
        """Return the results as they travel; `row_ends` as in ReplyMetadata. Raises LimitError."""
        columns = results.columns
        value = columns[0] if len(columns) == 1 else _struct(columns, self.schema.field(1).type)
        return pa.record_batch([self._rows_of(results.num_rows, row_ends), value], schema=self.schema)

    def _rows_of(self, results: int, row_ends: Sequence[int]) -> pa.Array:
        """Return for each result the number of its row, counted from the first row of the exchange."""
        first, self._row = self._row, self._row + len(row_ends)
        if self._row >= _MOST_ROWS:
            raise LimitError(f"more than {_MOST_ROWS} rows in one exchange: their numbers have 32 bits")
        runs = enumerate(pairwise([0, *row_ends, results]), start=first)
        found = [(end, number) for number, (start, end) in runs if end > start]
        ends, numbers = (pa.array([run[part] for run in found], pa.int32()) for part in (0, 1))
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))


def _struct(columns: Sequence[pa.Array], kind: pa.StructType) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns), fields=list(kind))
