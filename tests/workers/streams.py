# SPDX-License-Identifier: Apache-2.0
"""Streams over files, one file a batch, that scenarios run to their end."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
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
        path = directory / f"{number:03}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory))


def visits(spark: SparkSession) -> DataFrame:
    """Return the stream of VISITS."""
    return stream_of(spark, "name string, n long", VISITS)


def rows_of(frame: DataFrame, mode: str = "append", checkpoint: str | None = None) -> list[Any]:
    """Run a stream to its end and return its rows, sorted by their texts."""
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
    """Run a stream until it has this many rows and return them, sorted by their texts."""
    spark = frame.sparkSession
    name = f"sink_{uuid.uuid4().hex}"
    query = frame.writeStream.format("memory").queryName(name).start()

    def complete() -> bool:
        if not query.isActive:
            # Raise the error with which it has ended.
            query.awaitTermination()
        return bool(spark.table(name).count() >= count)

    try:
        until("the rows of the stream have come", complete)
        return sorted((list(row) for row in spark.table(name).collect()), key=repr)
    finally:
        query.stop()
        spark.catalog.dropTempView(name)
