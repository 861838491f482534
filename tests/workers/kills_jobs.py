# SPDX-License-Identifier: Apache-2.0
"""Jobs of several kinds whose answers do not depend on retries, and the places at which their processes can wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import BarrierTaskContext, TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import LongType, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from tests.workers.directories import new_directory
from tests.workers.kills_stop import Pass
from tests.workers.streams import first_rows_of, rows_of, stream_of

_STEPS = 10
# An exchange that transfers more than 4 MiB uses a segment on the pool's machine.
_BALLAST_BYTES = 128 << 10
_ELEMENTS = 100
_ROUNDS = 4
_BATCHES = [[{"name": "abc"[n % 3], "n": n} for n in range(start, start + 4)] for start in (0, 4, 8)]
_VISITS = sum(map(len, _BATCHES))
_OUT = "name string, total long"
_BARRIER = {"before the barrier": _ROUNDS, "after the barrier": _ROUNDS}


@dataclass(frozen=True)
class Kind:
    """Kind of job.

    Attributes:
        run: runs the job and returns its answer. The job's functions call the `Pass` at each place.
        tasks: number of steps at each place in a task.
        planning: number of steps at each place in a worker of the driver. Spark does not restart a worker of the
            driver.
        recovers: whether Spark runs a task again after it has lost its worker.
        lasting: place in a worker of the driver that lives as long as the job.
    """

    run: Callable[[SparkSession, Pass], Any]
    tasks: Mapping[str, int]
    planning: Mapping[str, int]
    recovers: bool = True
    lasting: str = ""


def _rdd(spark: SparkSession, passes: Pass) -> Any:
    def paired(blobs: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for step, blob in enumerate(blobs):
            passes("map", step)
            yield step % _STEPS, blob

    def counted(sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for key, size in sizes:
            passes("reduce", key)
            yield key, size

    blobs = spark.sparkContext.parallelize([bytes(_BALLAST_BYTES)] * _ELEMENTS, 2)
    sizes = blobs.mapPartitions(paired).mapValues(len).reduceByKey(lambda one, other: one + other, 2)
    return sorted(sizes.mapPartitions(counted).collect())


def _gathered(spark: SparkSession, passes: Pass) -> Any:
    def gathered(numbers: Iterable[int]) -> Iterator[list[str]]:
        context, total = BarrierTaskContext.get(), sum(numbers)
        for step in range(_ROUNDS):
            passes("before the barrier", step)
            totals = context.allGather(str(total))
            passes("after the barrier", step)
            total = sum(map(int, totals))
            yield totals

    return spark.sparkContext.range(_STEPS, numSlices=2).barrier().mapPartitions(gathered)


def _barrier(spark: SparkSession, passes: Pass) -> Any:
    return sorted(_gathered(spark, passes).keyBy(len).partitionBy(2).values().collect())


def _last_barrier(spark: SparkSession, passes: Pass) -> Any:
    return _gathered(spark, passes).collect()


@dataclass
class _Written(WriterCommitMessage):  # type: ignore[misc]  # PySpark's base classes are untyped to us
    rows: int


def _data_source(spark: SparkSession, passes: Pass) -> Any:
    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> Sequence[InputPartition]:
            passes("partitions", 0)
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            for step in range(_STEPS):
                passes("read", step)
                yield (partition.value * _STEPS + step,)

    class Writer(DataSourceWriter):  # type: ignore[misc]
        def __init__(self, directory: Path) -> None:
            self.directory = directory

        def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
            context, numbers = TaskContext.get(), []
            assert context is not None
            for step, row in enumerate(rows):
                passes("write", step)
                numbers.append(row.n)
            (self.directory / f"part-{context.partitionId()}").write_text(json.dumps(numbers))
            return _Written(len(numbers))

        def commit(self, messages: Sequence[Any]) -> None:
            passes("commit", 0)
            (self.directory / "committed").write_text(str([message.rows for message in messages]))

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "kills"

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return Writer(Path(self.options["path"]))

    spark.dataSource.register(Source)
    directory = new_directory()
    spark.read.format("kills").load().write.format("kills").mode("append").save(str(directory))
    return sorted((path.name, path.read_text()) for path in directory.iterdir())


def _pandas_with_state(spark: SparkSession, passes: Pass) -> Any:
    def totals(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        (total,) = state.getOption or (0,)
        for number in (int(number) for part in parts for number in part["n"]):
            passes("function", number)
            total += number
        state.update((total,))
        yield pd.DataFrame({"name": [key[0]], "total": [total]})

    visits = stream_of(spark, "name string, n long", _BATCHES).groupBy("name")
    return rows_of(visits.applyInPandasWithState(totals, _OUT, "total long", "update", "NoTimeout"), "update")


def _transform_with_state(spark: SparkSession, passes: Pass) -> Any:
    class Totals(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            for number in (int(number) for part in rows for number in part["n"]):
                total = self.total.get()[0] if self.total.exists() else 0
                # This place is between two calls of the state.
                passes("processor", number)
                self.total.update((total + number,))
            yield pd.DataFrame({"name": [key[0]], "total": [self.total.get()[0]]})

    visits = stream_of(spark, "name string, n long", _BATCHES).groupBy("name")
    return rows_of(visits.transformWithStateInPandas(Totals(), _OUT, "Update", "None"), "update")


def _streaming_source(spark: SparkSession, passes: Pass) -> Any:
    class Reader(DataSourceStreamReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.offset = 0

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"offset": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
            passes("latest offset", self.offset)
            self.offset = min(self.offset + _STEPS, 2 * _STEPS)
            return {"offset": self.offset}

        def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
            passes("stream's partitions", 0)
            middle = (start["offset"] + end["offset"]) // 2
            return [InputPartition((start["offset"], middle)), InputPartition((middle, end["offset"]))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            for number in range(*partition.value):
                passes("read of a stream", number)
                yield (number,)

        def commit(self, end: Any) -> None:
            pass

        def stop(self) -> None:
            pass

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "kills_stream"

        def schema(self) -> str:
            return "n long"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    spark.dataSource.register(Source)
    return first_rows_of(spark.readStream.format("kills_stream").load(), 2 * _STEPS)


def _table_function(spark: SparkSession, passes: Pass) -> Any:
    class Numbers:
        @staticmethod
        def analyze(count: AnalyzeArgument) -> AnalyzeResult:
            passes("analyze", 0)
            return AnalyzeResult(StructType().add("n", LongType()))

        def eval(self, count: int) -> Iterator[tuple[int]]:
            for number in range(count):
                yield (number,)

    return sorted(list(row) for row in F.udtf(Numbers)(F.lit(_STEPS)).collect())


KINDS: Mapping[str, Kind] = {
    "rdd": Kind(_rdd, {"map": _ELEMENTS // 2, "reduce": _STEPS}, {}),
    "barrier": Kind(_barrier, _BARRIER, {}),
    # Spark does not retry a barrier stage that is the last stage of a job.
    "last barrier": Kind(_last_barrier, _BARRIER, {}, recovers=False),
    "data source": Kind(_data_source, {"read": _STEPS, "write": _STEPS}, {"partitions": 1, "commit": 1}),
    "pandas with state": Kind(_pandas_with_state, {"function": _VISITS}, {}),
    "transform with state": Kind(_transform_with_state, {"processor": _VISITS}, {}),
    "streaming source": Kind(
        _streaming_source,
        {"read of a stream": 2 * _STEPS},
        {"latest offset": 1, "stream's partitions": 1},
        lasting="latest offset",
    ),
    "table function": Kind(_table_function, {}, {"analyze": 1}),
}
