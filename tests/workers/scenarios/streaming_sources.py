# SPDX-License-Identifier: Apache-2.0
"""Python data sources that streams read from and write to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.workers.directories import new_directory
from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.streams import first_rows_of, visits

_ROWS = 12


class _Source(DataSource):
    def schema(self) -> str:
        return "n long, text string"


class _Simple(SimpleDataSourceStreamReader):
    """Reader that returns twelve rows, four at a time."""

    def __init__(self, options: Any) -> None:
        self.fails = options.get("fails", "")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": 0}

    def read(self, start: Any) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        if self.fails == "read" and start["offset"] == 4:
            raise ValueError("the second batch")
        end = min(start["offset"] + 4, _ROWS)
        return self.readBetweenOffsets(start, {"offset": end}), {"offset": end}

    def readBetweenOffsets(self, start: Any, end: Any) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        return iter([(n, f"text {n}") for n in range(start["offset"], end["offset"])])

    def commit(self, end: Any) -> None:
        pass


class Simple(_Source):
    """Source without partitions, which a reader in the driver reads."""

    @classmethod
    def name(cls) -> str:
        return "simple_stream"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return _Simple(self.options)


@dataclass
class _Range(InputPartition):
    start: int
    end: int


class _Partitioned(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.log = options.get("log")
        self.fails = options.get("fails", "")
        self.offset = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        self.offset = min(self.offset + 6, _ROWS)
        return {"offset": self.offset}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return [_Range(n, min(n + 3, end["offset"])) for n in range(start["offset"], end["offset"], 3)]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        for number in range(partition.start, partition.end):
            if self.fails == "read":
                raise ValueError(f"row {number}")
            yield number, f"text {number}"

    def commit(self, end: Any) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"committed {end['offset']}\n")

    def stop(self) -> None:
        pass


class Partitioned(_Source):
    """Source whose partitions the executors read."""

    @classmethod
    def name(cls) -> str:
        return "partitioned_stream"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Partitioned(self.options)


def _rows(spark: SparkSession, source: type[DataSource], **options: str) -> list[Any]:
    """Return the twelve rows of a source, as soon as the stream has read all of them."""
    spark.dataSource.register(source)
    return first_rows_of(spark.readStream.format(source.name()).options(**options).load(), _ROWS)


@scenario(everyday=True, seconds=90)
def read_simple_stream(spark: SparkSession) -> Any:
    return _rows(spark, Simple)


@scenario(seconds=90)
def exception_in_a_simple_stream(spark: SparkSession) -> Any:
    return failure(lambda: _rows(spark, Simple, fails="read"))["class"]


@scenario(everyday=True, seconds=90)
def read_partitioned_stream(spark: SparkSession) -> Any:
    return _rows(spark, Partitioned)


@scenario(seconds=90)
def commits_of_a_stream(spark: SparkSession) -> Any:
    log = new_directory() / "log"
    rows = _rows(spark, Partitioned, log=str(log))
    return len(rows), log.read_text().splitlines()[:1]


@scenario(seconds=90)
def exception_in_a_partitioned_stream(spark: SparkSession) -> Any:
    return failure(lambda: _rows(spark, Partitioned, fails="read"))["class"]


@dataclass
class _Written(WriterCommitMessage):
    rows: int


class _StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: Any) -> None:
        self.directory = Path(options["path"])
        self.fails = options.get("fails", "")

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        if self.fails == "write":
            raise ValueError("a partition")
        rows = [row.asDict() for row in iterator]
        context = TaskContext.get()
        assert context is not None
        with (self.directory / f"part-{context.partitionId()}").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return _Written(len(rows))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        (self.directory / f"committed-{batchId}").write_text(str([message.rows for message in messages]))

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        (self.directory / f"aborted-{batchId}").write_text(str(len(messages)))


class Sink(DataSource):
    """Sink that writes JSON files, to which a stream appends."""

    @classmethod
    def name(cls) -> str:
        return "stream_files"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return _StreamWriter(self.options)


def _written(spark: SparkSession, directory: Path, **options: str) -> None:
    spark.dataSource.register(Sink)
    writer = visits(spark).coalesce(1).writeStream.format("stream_files").options(**options)
    writer = writer.option("path", str(directory)).option("checkpointLocation", str(new_directory()))
    writer.trigger(availableNow=True).start().awaitTermination()


def _contents(directory: Path) -> list[tuple[str, str]]:
    return sorted((path.name, path.read_text()) for path in directory.iterdir())


@scenario(everyday=True, seconds=90)
def write_stream(spark: SparkSession) -> Any:
    directory = new_directory()
    _written(spark, directory)
    return _contents(directory)


@scenario(seconds=90)
def write_of_a_stream_that_aborts(spark: SparkSession) -> Any:
    directory = new_directory()
    return failure(lambda: _written(spark, directory, fails="write"))["class"], _contents(directory)
