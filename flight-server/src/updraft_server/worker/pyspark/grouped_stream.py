# SPDX-License-Identifier: Apache-2.0
"""Stands where PySpark's worker has its socket, for functions over groups.

Spark frames groups by a count of tables before each (1, or 2 of a cogroup; 0 is the end) and one Arrow stream for each
table. Here the counts are read as bytes, and what would be a stream is the next table's slices, by the seam of
`arrow_stream`. `group_readers` finds the groups in the exchange's batches.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.arrow_stream import LAST_MARK, ArrowStream
from updraft_server.worker.pyspark.group_readers import Group
from updraft_server.worker.pyspark.replies import Replies
from updraft_server.worker.pyspark.wire import INT

_NO_MORE_GROUPS = INT.pack(0)


class GroupedStream(ArrowStream):
    """Input and output file of PySpark's worker for one exchange of groups."""

    def __init__(self, exchange: Exchange, replies: Replies, groups: Iterable[Group]) -> None:
        super().__init__(exchange, replies)
        self._unread = b""
        self._tables: deque[Iterable[pa.RecordBatch]] = deque()
        self._marks = self._count_tables(groups)

    def preface(self, data: bytes) -> None:
        """Let `data` be read before anything else."""
        self._unread = data

    def read(self, size: int) -> bytes:
        """Bytes of the preface, then a count for each group, then the marks of the end."""
        if size and self._position >= len(self._unread):
            self._unread, self._position = next(self._marks, b""), 0
        return super().read(size)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The slices of the next table of the group."""
        return iter(self._tables.popleft())

    def _count_tables(self, groups: Iterable[Group]) -> Iterator[bytes]:
        for tables in groups:
            self._tables.extend(tables)
            yield INT.pack(len(tables))
            # A function may have left a table unread.
            self._tables.clear()
        yield _NO_MORE_GROUPS
        yield LAST_MARK
