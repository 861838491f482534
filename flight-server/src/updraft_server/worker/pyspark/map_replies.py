# SPDX-License-Identifier: Apache-2.0
"""Replies of `mapInArrow` and `mapInPandas`, whose column types PySpark's worker neither checks nor casts."""

import pyarrow as pa

from updraft.errors import UserError
from updraft_server.worker.exchange import DIFFERENT_SCHEMA
from updraft_server.worker.pyspark.readable_columns import ReadableColumns
from updraft_server.worker.replies import FreeRunningReplies, ReplyChannel


class MapReplies(FreeRunningReplies):
    """Free-running replies whose columns are converted to types that Spark reads (`readable_columns`)."""

    def __init__(self, exchange: ReplyChannel) -> None:
        super().__init__(exchange)
        self._columns: ReadableColumns | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Send a batch, in parts if need be; raises UpdraftError."""
        columns = self._columns = self._columns or ReadableColumns(batch.schema)
        super().add(batch if columns.changes_nothing else self._readable(batch, columns))

    def _readable(self, batch: pa.RecordBatch, columns: ReadableColumns) -> pa.RecordBatch:
        # Compare before the conversion, which may make different schemas equal.
        if not batch.schema.equals(columns.schema):
            raise pa.ArrowInvalid(DIFFERENT_SCHEMA)
        try:
            return columns.convert(batch)
        except UserError as error:
            self._exchange.fail(error)
