# SPDX-License-Identifier: Apache-2.0
"""Jobs of the soak, whose rows describe themselves: tenant, application, task, attempt, number and value."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from tests.support.invariants import WRONG, Invariants, Rows, Source, runs
from tests.support.spark import runtime_confs

ROWS = 20_000
TENANT = "soak"
_PARTITIONS = 4
_GROUPS = 97
_PRIME = 1_000_003
_ANSWER = "tenant string, application string, task bigint, number bigint, value bigint, attempt bigint"


class Job:
    """One job of the soak. It runs as an application of its own, which its rows must carry."""

    def __init__(self, spark: SparkSession, number: int, directory: Path) -> None:
        self.spark = spark
        self.salt = number
        self.application = f"{spark.sparkContext.applicationId}-{number}"
        self.directory = directory / f"written-{number}"

    def source(self, task: Column, number: Column) -> DataFrame:
        """Return the rows, described with the given task and number."""
        return self.described(self.spark.range(0, ROWS, 1, _PARTITIONS), task, number)

    def described(self, rows: DataFrame, task: Column, number: Column) -> DataFrame:
        """Return these rows with the columns that identify their task and number."""
        owner = [F.lit(TENANT).alias("tenant"), F.lit(self.application).alias("application")]
        described = [task.cast("bigint").alias("task"), number.cast("bigint").alias("number")]
        return rows.select(*owner, *described)

    def partitions(self) -> DataFrame:
        """Return the rows; each partition is a task."""
        size = ROWS // _PARTITIONS
        return self.source(F.floor(F.col("id") / size), F.col("id") % size + 1)

    def answered(self, answer: pa.Table, tasks: Mapping[int, int], invariants: Invariants) -> int:
        """Check that an answer has the expected rows of each task. Return the number of its rows."""
        for task, rows in tasks.items():
            invariants.begins(self._source_of(task), rows)
        for run in described(answer, self.salt):
            invariants.delivered(run.source, run)
        for task in tasks:
            invariants.ends(self._source_of(task))
        return int(answer.num_rows)

    def written(self, invariants: Invariants) -> int:
        """Check the files of the job, one for each partition. Return the number of their rows."""
        count = 0
        names = {task: f"{self.application}/part-{task:05}" for task in range(_PARTITIONS)}
        for task, name in names.items():
            invariants.finished(name, self._source_of(task), ROWS // _PARTITIONS)
        for path in sorted(self.directory.glob("part-*.parquet")):
            content = _read(path, self.salt)
            invariants.published(f"{self.application}/{path.name[:10]}", content)
            count += sum(run.last - run.first + 1 for run in content)
        for name in names.values():
            invariants.confirmed(name)
        return count

    def _source_of(self, task: int) -> Source:
        return Source(TENANT, self.application, str(task))


def _read(path: Path, salt: int) -> list[Rows]:
    """Return the rows of a file; an empty list if it is not a Parquet file."""
    try:
        return list(described(pq.read_table(path), salt))
    except pa.ArrowInvalid:
        return []


def described(answer: pa.Table, salt: int) -> Iterator[Rows]:
    """Yield the rows of an answer, in order, as they describe themselves. A wrong value turns the number into WRONG."""
    tasks, numbers, values, attempts = (
        pc.fill_null(answer[name], WRONG).to_numpy() for name in ("task", "number", "value", "attempt")
    )
    numbers = np.where(values == value(tasks, numbers, salt), numbers, WRONG)
    columns = [answer["tenant"].to_numpy(), answer["application"].to_numpy(), tasks, attempts]
    for begin, end in runs(numbers, *columns):
        tenant, application, task, attempt = (column[begin] for column in columns)
        yield Rows(Source(tenant, application, str(task)), int(attempt), int(numbers[begin]), int(numbers[end]))


def value(task: Any, number: Any, salt: int) -> Any:
    """Return the functions' result for a row, or for an array or column of rows."""
    return ((task * ROWS + number) * 31 + salt) % _PRIME


def _attempt() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.attemptNumber())


_BY_PARTITION = dict.fromkeys(range(_PARTITIONS), ROWS // _PARTITIONS)
_BY_GROUP = {group: len(range(group, ROWS, _GROUPS)) for group in range(_GROUPS)}


def _pandas_udf(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pd.Series, number: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"value": value(task, number, salt), "attempt": _attempt()})

    function = F.pandas_udf(valued, "value bigint, attempt bigint")
    return job.answered(_with(job.partitions(), function).toArrow(), _BY_PARTITION, invariants)


def _arrow_udf(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pa.Array, number: pa.Array) -> pa.Array:
        product = pc.add(pc.multiply(pc.add(pc.multiply(task, ROWS), number), 31), salt)
        values = pc.subtract(product, pc.multiply(pc.divide(product, _PRIME), _PRIME))
        return pa.StructArray.from_arrays([values, pa.repeat(_attempt(), len(values))], ["value", "attempt"])

    function = F.arrow_udf(valued, "value bigint, attempt bigint", F.ArrowUDFType.SCALAR)
    return job.answered(_with(job.partitions(), function).toArrow(), _BY_PARTITION, invariants)


def _with(frame: DataFrame, function: Callable[..., Column]) -> DataFrame:
    return frame.select("*", function("task", "number").alias("made")).select("*", "made.*").drop("made")


def _map_in_pandas(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(value=value(frame["task"], frame["number"], salt), attempt=_attempt())

    return job.answered(job.partitions().mapInPandas(valued, _ANSWER).toArrow(), _BY_PARTITION, invariants)


def _grouped(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.sort_values("number")
        return frame.assign(value=value(frame["task"], frame["number"], salt), attempt=_attempt())

    # Each group is a task.
    rows = job.source(F.col("id") % _GROUPS, F.floor(F.col("id") / _GROUPS) + 1)
    return job.answered(rows.groupBy("task").applyInPandas(valued, _ANSWER).toArrow(), _BY_GROUP, invariants)


def _written(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pd.Series, number: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"value": value(task, number, salt), "attempt": _attempt()})

    rows = _with(job.partitions(), F.pandas_udf(valued, "value bigint, attempt bigint"))
    try:
        rows.write.format("updraft-parquet").save(str(job.directory))
        return job.written(invariants)
    finally:
        shutil.rmtree(job.directory, ignore_errors=True)


def _rdd(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(row: Any) -> tuple[Any, ...]:
        return (*row, value(row.task, row.number, salt), _attempt())

    rows = job.partitions().rdd.map(valued).collect()
    return job.answered(_table(rows), _BY_PARTITION, invariants)


class _Source(DataSource):
    """Data source with a job's rows, one partition per task. Its options are the application and the salt."""

    @classmethod
    def name(cls) -> str:
        return "soak"

    def schema(self) -> str:
        return _ANSWER

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["application"], int(self.options["salt"]))


class _Reader(DataSourceReader):
    def __init__(self, application: str, salt: int) -> None:
        self._application, self._salt = application, salt

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        task, attempt = partition.value, _attempt()
        for number in range(1, ROWS // _PARTITIONS + 1):
            yield TENANT, self._application, task, number, value(task, number, self._salt), attempt


def _data_source(job: Job, invariants: Invariants) -> int:
    job.spark.dataSource.register(_Source)
    options = {"application": job.application, "salt": job.salt}
    answer = job.spark.read.format(_Source.name()).options(**options).load().toArrow()
    return job.answered(answer, _BY_PARTITION, invariants)


def _state(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(_key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        frame = pd.concat(frames).sort_values("number")
        state.update((len(frame),))
        yield frame.assign(value=value(frame["task"], frame["number"], salt), attempt=_attempt())

    stream = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    rows = job.described(stream, F.col("value") % _GROUPS, F.floor(F.col("value") / _GROUPS) + 1)
    grouped = rows.groupBy("task")
    answers = grouped.applyInPandasWithState(valued, _ANSWER, "rows long", "update", GroupStateTimeout.NoTimeout)
    name = f"state_{job.salt}"
    sink = answers.writeStream.format("memory").queryName(name).outputMode("update").trigger(once=True)
    # The operators leave this function to Spark's Python worker, which also runs on the pool.
    with runtime_confs(job.spark, {"spark.updraft.udf.unsupported": "local"}):
        query = sink.start()
    try:
        query.awaitTermination()
        return job.answered(job.spark.table(name).toArrow(), _BY_GROUP, invariants)
    finally:
        query.stop()
        job.spark.catalog.dropTempView(name)


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    names = [column.split()[0] for column in _ANSWER.split(", ")]
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], names)


JOBS: dict[str, Callable[[Job, Invariants], int]] = {
    "pandas_udf": _pandas_udf,
    "arrow_udf": _arrow_udf,
    "map_in_pandas": _map_in_pandas,
    "grouped": _grouped,
    "written": _written,
    "rdd": _rdd,
    "data_source": _data_source,
    "state": _state,
}
"""Jobs by name. Each runs, checks its rows, and returns their number."""
