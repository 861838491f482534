# SPDX-License-Identifier: Apache-2.0
"""Stands where PySpark's worker has its socket, for functions over groups in 4.0: each is one batch."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.arrow_stream import ArrowStream
from updraft_server.worker.pyspark.group_readers import Group
from updraft_server.worker.pyspark.replies import Replies


class GroupBatchStream(ArrowStream):
    """Input and output file of PySpark's worker for one exchange of groups."""

    def __init__(self, exchange: Exchange, replies: Replies, groups: Iterable[Group]) -> None:
        super().__init__(exchange, replies)
        self._groups = groups

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The groups, each in one piece."""
        for (slices,) in self._groups:
            yield pa.concat_batches(list(slices))
