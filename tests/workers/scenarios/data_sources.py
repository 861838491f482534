# SPDX-License-Identifier: Apache-2.0
"""Python data sources that read and write batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.support.spark import runtime_confs
from tests.support.waiting import until
from tests.workers.directories import new_directory
from tests.workers.failures import failure
from tests.workers.scenario import scenario


@dataclass
class _Range(InputPartition):
    start: int
    end: int


class _Reader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self.count = int(options.get("count", 10))
        self.fails = options.get("fails", "")

    def partitions(self) -> Sequence[InputPartition]:
        if self.fails == "partitions":
            raise ValueError("no partitions")
        step = max(4, self.count // 4)
        return [_Range(start, min(start + step, self.count)) for start in range(0, self.count, step)]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        for number in range(partition.start, partition.end):
            if self.fails == "read" and number == 6:
                raise ValueError(f"row {number}")
            yield number, f"text {number}"


class Numbers(DataSource):
    """Source of numbers and texts. The option `fails` names the method that raises."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        if self.options.get("fails") == "schema":
            raise ValueError("no schema")
        return "n long, text string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


def _read(spark: SparkSession, source: type[DataSource] = Numbers, **options: str) -> Any:
    spark.dataSource.register(source)
    rows = spark.read.format(source.name()).options(**options).load().collect()
    return sorted((list(row) for row in rows), key=repr)


@scenario(everyday=True, since=(4, 1))
def log_lines(spark: SparkSession) -> Any:
    """Write log lines while partitions are planned and read, and find these lines in the session's table of logs."""

    class Logging(_Reader):
        def partitions(self) -> Sequence[InputPartition]:
            logging.getLogger("of.numbers").warning("planned")
            return super().partitions()

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            logging.getLogger("of.numbers").warning("read from %d", partition.start)
            yield from super().read(partition)

    class LoggingNumbers(Numbers):
        @classmethod
        def name(cls) -> str:
            return "logging-numbers"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Logging(self.options)

    def logged() -> list[str]:
        found = spark.tvf.python_worker_logs().where("logger = 'of.numbers'").select("msg").collect()
        messages = sorted({row.msg for row in found})
        return messages if len(messages) == 4 else []

    with runtime_confs(spark, {"spark.sql.pyspark.worker.logging.enabled": "true"}):
        rows = _read(spark, LoggingNumbers, count="10")
        # The log lines may become visible after the rows.
        return len(rows), until("all lines are in the table", logged)


@scenario(everyday=True)
def read(spark: SparkSession) -> Any:
    return _read(spark, count="22")


@scenario()
def read_with_a_schema_of_the_user(spark: SparkSession) -> Any:
    spark.dataSource.register(Numbers)
    frame = spark.read.format("numbers").schema("a int, b string").load()
    return frame.schema.simpleString(), sorted(list(row) for row in frame.collect())


@scenario()
def read_in_sql(spark: SparkSession) -> Any:
    spark.dataSource.register(Numbers)
    spark.sql("CREATE TABLE numbers_table USING numbers OPTIONS (count '6')")
    try:
        return sorted(list(row) for row in spark.sql("SELECT n + 1, upper(text) FROM numbers_table").collect())
    finally:
        spark.sql("DROP TABLE numbers_table")


@scenario()
def read_arrow_batches(spark: SparkSession) -> Any:
    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(3)]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            numbers = [partition.value * 10 + n for n in range(3)]
            yield pa.RecordBatch.from_pydict({"n": numbers, "text": [str(n) for n in numbers]})

    class Batches(Numbers):
        @classmethod
        def name(cls) -> str:
            return "batches"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return _read(spark, Batches)


@scenario()
def read_without_partitions(spark: SparkSession) -> Any:
    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            yield 1, repr(partition)
            yield None, None

    class Single(Numbers):
        @classmethod
        def name(cls) -> str:
            return "single"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return _read(spark, Single)


@scenario()
def read_many_rows(spark: SparkSession) -> Any:
    spark.dataSource.register(Numbers)
    frame = spark.read.format("numbers").option("count", "40000").load().selectExpr("sum(n)", "max(text)", "count(*)")
    return list(frame.first() or ())


@scenario(everyday=True, since=(4, 1))
def read_with_pushed_filters(spark: SparkSession) -> Any:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan

    class Reader(_Reader):
        pushed: tuple[str, ...] = ()
        least = -1

        def pushFilters(self, filters: list[Filter]) -> Any:  # noqa: N802
            for one in filters:
                if isinstance(one, GreaterThan):
                    self.least = one.value
                else:
                    yield one
            self.pushed = tuple(sorted(type(one).__name__ for one in filters if isinstance(one, GreaterThan | EqualTo)))

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            for number in range(partition.start, partition.end):
                if number > self.least:
                    yield number, f"{self.pushed} {number}"

    class Filtered(Numbers):
        @classmethod
        def name(cls) -> str:
            return "filtered"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(self.options)

    spark.dataSource.register(Filtered)
    frame = spark.read.format("filtered").load().where("n > 3 AND n % 2 = 0 AND text != 'x'")
    return sorted(list(row) for row in frame.collect())


@scenario()
def exception_in_a_schema(spark: SparkSession) -> Any:
    return failure(lambda: _read(spark, fails="schema"))


@scenario()
def exception_in_partitions(spark: SparkSession) -> Any:
    return failure(lambda: _read(spark, fails="partitions"))


@scenario()
def exception_in_read(spark: SparkSession) -> Any:
    return failure(lambda: _read(spark, fails="read"))


@scenario()
def unknown_source(spark: SparkSession) -> Any:
    return failure(lambda: spark.read.format("no_such_source").load())["class"]


@dataclass
class _Written(WriterCommitMessage):
    rows: int


class _Writer(DataSourceWriter):
    """Writer that writes a file for each partition, and a file at the end."""

    def __init__(self, options: Any, overwrite: bool) -> None:
        self.directory = Path(options["path"])
        self.fails = options.get("fails", "")
        self.overwrite = overwrite

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = [row.asDict() for row in iterator]
        if self.fails == "write" and context.partitionId() == 1:
            raise ValueError("a partition")
        (self.directory / f"part-{context.partitionId()}").write_text(json.dumps(rows))
        return _Written(len(rows))

    def commit(self, messages: Sequence[Any]) -> None:
        if self.fails == "commit":
            raise ValueError("no commit")
        rows = [message.rows for message in messages]
        (self.directory / "committed").write_text(f"{rows} overwrite={self.overwrite}")

    def abort(self, messages: Sequence[Any]) -> None:
        (self.directory / "aborted").write_text(f"{sum(message is None for message in messages)} failed")


class Files(DataSource):
    """Data source that writes JSON files."""

    @classmethod
    def name(cls) -> str:
        return "json_files"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(self.options, overwrite)


def _contents(directory: Path) -> list[tuple[str, str]]:
    return sorted((path.name, path.read_text()) for path in directory.iterdir())


@scenario(everyday=True)
def write(spark: SparkSession) -> Any:
    spark.dataSource.register(Files)
    directory, frame = new_directory(), spark.range(0, 10, 1, 3).selectExpr("id", "id / 4 AS quarter")
    frame.write.format("json_files").mode("append").save(str(directory))
    appended = _contents(directory)
    frame.limit(1).write.format("json_files").mode("overwrite").save(str(directory))
    return appended, _contents(directory)


@scenario()
def write_that_aborts(spark: SparkSession) -> Any:
    spark.dataSource.register(Files)
    directory = new_directory()
    writer = spark.range(0, 10, 1, 3).write.format("json_files").mode("append").option("fails", "write")
    found = failure(lambda: writer.save(str(directory)))
    return found["class"], found.get("cause"), "aborted" in dict(_contents(directory))


@scenario()
def write_whose_commit_fails(spark: SparkSession) -> Any:
    spark.dataSource.register(Files)
    directory = new_directory()
    writer = spark.range(0, 10, 1, 3).write.format("json_files").mode("append").option("fails", "commit")
    return failure(lambda: writer.save(str(directory))), _contents(directory)


@scenario()
def write_arrow_batches(spark: SparkSession) -> Any:
    class Writer(DataSourceArrowWriter):
        def __init__(self, path: str) -> None:
            self.path = Path(path)

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return _Written(sum(batch.num_rows for batch in iterator))

        def commit(self, messages: Sequence[Any]) -> None:
            (self.path / "committed").write_text(str([message.rows for message in messages]))

    class Counts(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counts"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return Writer(self.options["path"])

    spark.dataSource.register(Counts)
    directory = new_directory()
    spark.range(0, 1000, 1, 2).write.format("counts").mode("append").save(str(directory))
    return _contents(directory)
