# SPDX-License-Identifier: Apache-2.0
"""Streaming queries: functions of batches and rows, and functions inside a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.workers.directories import new_directory
from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.streams import rows_of, visits


def _run(writer: Any) -> None:
    writer.trigger(availableNow=True).start().awaitTermination()


@scenario(everyday=True)
def foreach_batch_over_rdds(spark: SparkSession) -> Any:
    """Use RDDs in the driver's function of a batch."""
    found: list[Any] = []

    def take(batch: DataFrame, number: int) -> None:
        found.append((number, sorted(batch.rdd.map(lambda row: f"{row.name} {row.n * 2}").collect())))

    _run(visits(spark).writeStream.foreachBatch(take))
    return found


@scenario()
def foreach_batch_that_raises(spark: SparkSession) -> Any:
    def refuse(batch: DataFrame, number: int) -> None:
        batch.rdd.map(lambda row: 1 // 0).collect()

    return failure(lambda: _run(visits(spark).writeStream.foreachBatch(refuse)))["class"]


@scenario(everyday=True)
def foreach_row(spark: SparkSession) -> Any:
    """Run a function of rows in the workers, which writes files."""
    directory = str(new_directory())

    def write(row: Row) -> None:
        with Path(directory, row.name).open("a") as file:
            file.write(f"{row.n}\n")

    _run(visits(spark).coalesce(1).writeStream.foreach(write))
    return sorted((path.name, sorted(path.read_text().split())) for path in Path(directory).iterdir())


@scenario()
def foreach_writer(spark: SparkSession) -> Any:
    directory = str(new_directory())

    class Writer:
        def open(self, partition: int, epoch: int) -> bool:
            self.lines = [f"open {partition} {epoch}"]
            self.path = Path(directory, f"{epoch}-{partition}")
            return epoch != 1

        def process(self, row: Row) -> None:
            self.lines.append(f"{row.name} {row.n}")

        def close(self, error: Exception | None) -> None:
            self.path.write_text("\n".join([*sorted(self.lines), f"close {error}"]))

    _run(visits(spark).coalesce(1).writeStream.foreach(Writer()))
    return sorted((path.name, path.read_text()) for path in Path(directory).iterdir())


@scenario()
def foreach_row_that_raises(spark: SparkSession) -> Any:
    def refuse(row: Row) -> None:
        raise ValueError(f"a row of {row.name}")

    return failure(lambda: _run(visits(spark).coalesce(1).writeStream.foreach(refuse)))["class"]


@scenario()
def functions_in_a_stream(spark: SparkSession) -> Any:
    upper = F.udf(lambda name: name.upper(), "string")
    return rows_of(visits(spark).select(upper("name").alias("name"), "n"))


@scenario()
def counts_of_a_stream(spark: SparkSession) -> Any:
    """Count after a function, with state that Spark keeps itself."""
    upper = F.udf(lambda name: name.upper(), "string")
    return rows_of(visits(spark).groupBy(upper("name").alias("name")).count(), "complete")
