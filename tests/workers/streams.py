# SPDX-License-Identifier: Apache-2.0
"""Streams over files, one file a batch, that scenarios run to their end."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.waiting import until
from tests.workers.directories import new_directory

Batch = Sequence[Mapping[str, Any]]
VISITS: Sequence[Batch] = (
    [{"name": "a", "n": 1}, {"name": "b", "n": 2}, {"name": "a", "n": 3}],
    [{"name": "b", "n": 4}, {"name": "c", "n": 5}],
    [{"name": "a", "n": 6}],
)
"""Batches of names with numbers."""


def stream_of(spark: SparkSession, schema: str, batches: Sequence[Batch]) -> DataFrame:
    """Return a stream of these rows."""
    directory = new_directory()
    for number, rows in enumerate(batches):
        _write(directory, number, rows)
    return _stream_from(spark, schema, directory)


def _write(directory: Path, number: int, rows: Batch) -> None:
    path = directory / f"{number:03}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def _stream_from(spark: SparkSession, schema: str, directory: Path) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory))


class RestartedStream:
    """Stream whose batches several queries process in turn. Each query continues from the previous checkpoint."""

    def __init__(self, spark: SparkSession, schema: str) -> None:
        self._spark, self._schema = spark, schema
        self._source, self._checkpoint, self._output = new_directory(), new_directory(), new_directory()
        self._batches = 0

    def run(self, batches: Sequence[Batch], query: Callable[[DataFrame], DataFrame]) -> list[Any]:
        """Let a query process these batches. Return the rows of all queries so far, sorted as texts."""
        for rows in batches:
            _write(self._source, self._batches, rows)
            self._batches += 1
        frame = query(_stream_from(self._spark, self._schema, self._source))
        rows_directory = str(self._output / "rows")
        writer = frame.writeStream.format("json").option("checkpointLocation", str(self._checkpoint / "query"))
        writer.trigger(availableNow=True).start(rows_directory).awaitTermination()
        found = self._spark.read.schema(frame.schema).json(rows_directory).collect()
        return sorted((list(row) for row in found), key=repr)


def visits(spark: SparkSession) -> DataFrame:
    """Return the stream of VISITS."""
    return stream_of(spark, "name string, n long", VISITS)


def rows_of(frame: DataFrame, mode: str = "append", checkpoint: str | None = None) -> list[Any]:
    """Run a stream to its end and return its rows, sorted as texts."""
    name = f"sink_{uuid.uuid4().hex}"
    writer = frame.writeStream.format("memory").queryName(name).outputMode(mode).trigger(availableNow=True)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()
    spark = frame.sparkSession
    rows = sorted((list(row) for row in spark.table(name).collect()), key=repr)
    spark.catalog.dropTempView(name)
    return rows


def first_rows_of(frame: DataFrame, count: int) -> list[Any]:
    """Run a stream until it has returned this many rows; return them, sorted as texts."""
    spark = frame.sparkSession
    name = f"sink_{uuid.uuid4().hex}"
    query = frame.writeStream.format("memory").queryName(name).start()

    def complete() -> bool:
        if not query.isActive:
            # If the query has ended with an error, raise the error.
            query.awaitTermination()
        return bool(spark.table(name).count() >= count)

    try:
        until("the rows of the stream have come", complete)
        return sorted((list(row) for row in spark.table(name).collect()), key=repr)
    finally:
        query.stop()
        spark.catalog.dropTempView(name)
