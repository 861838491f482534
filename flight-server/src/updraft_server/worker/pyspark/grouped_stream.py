# SPDX-License-Identifier: Apache-2.0
"""Replacement for the socket of PySpark's worker, for functions over groups.

Spark writes a count of tables before each group (1, or 2 for a cogroup; 0 at the end) and one Arrow stream for each
table. Here the worker reads the counts as bytes, and gets the slices of the next table instead of a stream, through the
methods that `arrow_stream` installs. `group_readers` finds the groups in the exchange's batches.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from updraft_server.worker.pyspark.arrow_stream import LAST_MARK, ArrowStream
from updraft_server.worker.pyspark.group_readers import Group
from updraft_server.worker.pyspark.wire import INT
from updraft_server.worker.replies import Replies

_NO_MORE_GROUPS = INT.pack(0)


class GroupedStream(ArrowStream):
    """Input and output file of PySpark's worker for one exchange of groups."""

    def __init__(self, replies: Replies, groups: Iterable[Group]) -> None:
        super().__init__(replies, ())
        self._tables: deque[Iterable[pa.RecordBatch]] = deque()
        self._pieces = self._count_tables(groups)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the slices of the next table of the group."""
        return iter(self._tables.popleft())

    def _count_tables(self, groups: Iterable[Group]) -> Iterator[bytes]:
        for tables in groups:
            self._tables.extend(tables)
            yield INT.pack(len(tables))
            # A function may have left a table unread.
            self._tables.clear()
        yield _NO_MORE_GROUPS
        yield LAST_MARK
