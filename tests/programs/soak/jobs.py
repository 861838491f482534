# SPDX-License-Identifier: Apache-2.0
"""All jobs of the soak: jobs with functions, and jobs that run in Python workers which Spark itself starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from tests.programs.soak import function_jobs
from tests.programs.soak.job import ANSWER, BY_GROUP, BY_PARTITION, NAMES, PARTITIONS, ROWS, TENANT, Job, attempt, value
from tests.support.invariants import WRONG, Invariants
from tests.support.spark import runtime_confs

MOST_STARTS = 30
"""Limit on the starts of a query. A query fails whenever the worker that plans its batches dies."""

# Number of tasks in a barrier stage, which run at the same time. The smallest cluster of a soak has two slots.
_TOGETHER = 2


def _rdd(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(row: Any) -> tuple[Any, ...]:
        return (*row, value(row.task, row.number, salt), attempt())

    return job.answered(_table(job.partitions().rdd.map(valued).collect()), BY_PARTITION, invariants)


def _barrier(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        context = BarrierTaskContext.get()
        met = context.allGather(str(context.partitionId()))
        for row in rows:
            right = value(row.task, row.number, salt)
            yield (*row, right if met == [str(number) for number in range(_TOGETHER)] else WRONG, attempt())
        context.barrier()

    rows = job.partitions(_TOGETHER).rdd.barrier().mapPartitions(valued)
    # Add another stage, because Spark does not retry a barrier stage that is the last stage.
    shuffled = rows.keyBy(lambda row: row[2]).partitionBy(PARTITIONS).values()
    return job.answered(_table(shuffled.collect()), BY_PARTITION, invariants)


def _rows(application: str, salt: int, task: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a partition that is a task."""
    tries = attempt()
    for number in range(1, ROWS // PARTITIONS + 1):
        yield TENANT, application, task, number, value(task, number, salt), tries


class _Source(DataSource):
    """Data source with a job's rows, one partition for each task. Its options are the application and the salt."""

    @classmethod
    def name(cls) -> str:
        return "soak"

    def schema(self) -> str:
        return ANSWER

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["application"], int(self.options["salt"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(self.options["application"], int(self.options["salt"]))


class _Reader(DataSourceReader):
    def __init__(self, application: str, salt: int) -> None:
        self._application, self._salt = application, salt

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _rows(self._application, self._salt, partition.value)


class _StreamReader(DataSourceStreamReader):
    """Reader of a stream with one batch. The offset is the number of tasks."""

    def __init__(self, application: str, salt: int) -> None:
        self._application, self._salt = application, salt

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"tasks": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"tasks": PARTITIONS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(task) for task in range(start["tasks"], end["tasks"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _rows(self._application, self._salt, partition.value)

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass


def _options(job: Job) -> dict[str, Any]:
    job.spark.dataSource.register(_Source)
    return {"application": job.application, "salt": job.salt}


def _data_source(job: Job, invariants: Invariants) -> int:
    answer = job.spark.read.format(_Source.name()).options(**_options(job)).load().toArrow()
    return job.answered(answer, BY_PARTITION, invariants)


def _streaming_source(job: Job, invariants: Invariants) -> int:
    stream = job.spark.readStream.format(_Source.name()).options(**_options(job)).load()
    files, checkpoint = str(job.directory / "files"), str(job.directory / "checkpoint")
    sink = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(once=True)
    try:
        run_to_its_end(lambda: sink.start(files))
        answer = job.spark.read.schema(ANSWER).parquet(files).sort("task", "number").toArrow()
        return job.answered(answer, BY_PARTITION, invariants)
    finally:
        shutil.rmtree(job.directory, ignore_errors=True)


def run_to_its_end(start: Callable[[], Any]) -> None:
    """Run a query to its end. If the query fails, start it again from its checkpoint, as a platform does."""
    for left in reversed(range(MOST_STARTS)):
        try:
            start().awaitTermination()
            return
        except StreamingQueryException:
            if not left:
                raise


def _state(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(_key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        frame = pd.concat(frames).sort_values("number")
        state.update((len(frame),))
        yield frame.assign(value=value(frame["task"], frame["number"], salt), attempt=attempt())

    def answers(stream: DataFrame) -> DataFrame:
        grouped = stream.groupBy("task")
        return grouped.applyInPandasWithState(valued, ANSWER, "rows long", "update", GroupStateTimeout.NoTimeout)

    return _streamed(job, answers, invariants)


def _transform(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    class Valued(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.rows = handle.getListState("rows", "number long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            """Return the rows whose numbers the state returns."""
            (task,) = key
            frames = list(rows)
            for frame in frames:
                self.rows.appendList([(int(number),) for number in frame["number"]])
            numbers = pd.Series(sorted(number for (number,) in self.rows.get()))
            owner = {name: frames[0][name].iloc[0] for name in ("tenant", "application")}
            columns = {"task": task, "number": numbers, "value": value(task, numbers, salt), "attempt": attempt()}
            yield pd.DataFrame({**columns, **owner})[NAMES]

    def answers(stream: DataFrame) -> DataFrame:
        return stream.groupBy("task").transformWithStateInPandas(Valued(), ANSWER, "Update", "None")

    return _streamed(job, answers, invariants)


def _streamed(job: Job, answers: Callable[[DataFrame], DataFrame], invariants: Invariants) -> int:
    """Run a stateful function over a stream of the groups' rows, and check its answer."""
    stream = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    name = f"answers_{job.salt}"
    sink = answers(job.groups(stream.select("value"))).writeStream.format("memory").queryName(name)
    # Let the operators leave these functions to Spark's Python worker, which also runs on the pool.
    with runtime_confs(job.spark, {"spark.updraft.udf.unsupported": "local"}):
        query = sink.outputMode("update").trigger(once=True).start()
    try:
        query.awaitTermination()
        return job.answered(job.spark.table(name).toArrow(), BY_GROUP, invariants)
    finally:
        query.stop()
        job.spark.catalog.dropTempView(name)


@dataclass
class _Analyzed(AnalyzeResult):
    salt: int = 0


class _Rows:
    """Table function that returns the rows of a task. Its arguments are the application, the salt and the task."""

    @staticmethod
    def analyze(application: AnalyzeArgument, salt: AnalyzeArgument, task: AnalyzeArgument) -> AnalyzeResult:
        schema = StructType()
        for column in ANSWER.split(", "):
            name, kind = column.split()
            schema.add(name, StringType() if kind == "string" else LongType())
        return _Analyzed(schema, salt=salt.value)

    def __init__(self, analyzed: _Analyzed) -> None:
        self._salt = analyzed.salt

    def eval(self, application: str, salt: int, task: int) -> Iterator[tuple[Any, ...]]:
        return _rows(application, self._salt, task)


def _table_function(job: Job, invariants: Invariants) -> int:
    function = F.udtf(_Rows)(F.lit(job.application), F.lit(job.salt), F.col("id").outer())
    answer = job.spark.range(0, PARTITIONS, 1, PARTITIONS).lateralJoin(function).drop("id").toArrow()
    return job.answered(answer, BY_PARTITION, invariants)


def _table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], NAMES)


JOBS: dict[str, Callable[[Job, Invariants], int]] = {
    **function_jobs.JOBS,
    "rdd": _rdd,
    "barrier": _barrier,
    "data_source": _data_source,
    "streaming_source": _streaming_source,
    "state": _state,
    "transform": _transform,
    "table_function": _table_function,
}
"""Jobs by name. Each job runs, checks its rows, and returns the number of rows."""
