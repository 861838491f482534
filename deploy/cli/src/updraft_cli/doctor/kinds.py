# SPDX-License-Identifier: Apache-2.0
"""Spark application that starts a Python worker of each kind, for `updraft doctor --python-workers`.

The driver's Python runs this file by its path, so it imports nothing but PySpark. The confs of the application are the
JSON object on standard input. The application prints a JSON array for each kind: its name, and the problem, or an empty
text if all of its code ran on a pool.
"""

import json
import re
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.functions import lit, udf, udtf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeResult

_ELSEWHERE = re.compile(r"RuntimeError: (its code ran in .+ on \S+, not on a pool)")
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STREAM_SECONDS = 120


def _check() -> bool:
    """Return True in a worker of a pool; raise RuntimeError anywhere else."""
    if "updraft_server" not in sys.modules:
        raise RuntimeError(f"its code ran in {sys.executable} on {socket.gethostname()}, not on a pool")
    return True


def _rdd(spark: SparkSession) -> None:
    spark.sparkContext.parallelize(range(2), 2).map(lambda _: _check()).collect()


def _barrier(spark: SparkSession) -> None:
    def wait(_numbers: Any) -> Iterator[bool]:
        BarrierTaskContext.get().barrier()
        yield _check()

    spark.sparkContext.parallelize(range(1), 1).barrier().mapPartitions(wait).collect()


def _function(spark: SparkSession) -> None:
    spark.range(2).select(udf(lambda _: _check(), "boolean")("id")).collect()


def _table_function(spark: SparkSession) -> None:
    class Analyzed:
        @staticmethod
        def analyze(_number: Any) -> AnalyzeResult:
            return AnalyzeResult(StructType().add("is_on_pool", "boolean", _check()))

        def eval(self, _number: Any) -> Iterator[Any]:
            yield (_check(),)

    udtf(Analyzed)(lit(1)).collect()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        _check()
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (_check(),)


class _Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        _check()
        list(iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _check()


class _StreamReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark names it
        _check()
        return {"offset": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        return iter([(_check(),)] if start == {"offset": 0} else []), {"offset": 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:  # noqa: N802
        return iter([(_check(),)])


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "updraft_doctor"

    def schema(self) -> str:
        _check()
        return "is_on_pool boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        return _Writer()

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return _StreamReader()


def _read(spark: SparkSession) -> None:
    spark.read.format(_Source.name()).load().collect()


def _write(spark: SparkSession) -> None:
    spark.range(1).selectExpr("true AS is_on_pool").write.format(_Source.name()).mode("append").save()


def _stream(spark: SparkSession) -> None:
    _run_stream(spark.readStream.format(_Source.name()).load())


def _rows(spark: SparkSession) -> Any:
    """Return a stream that needs no Python and no files."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().withColumn("key", lit(1))


def _state(spark: SparkSession) -> None:
    def count(_key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        _check()
        state.update((1,))
        yield from (frame[["key"]] for frame in frames)

    grouped = _rows(spark).groupBy("key")
    _run_stream(grouped.applyInPandasWithState(count, "key int", "n long", "update", GroupStateTimeout.NoTimeout))


class _Processor(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        _check()
        self.seen.update((1,))
        yield from (frame[["key"]] for frame in rows)


def _transform(spark: SparkSession) -> None:
    spark.conf.set(_STORE, _ROCKSDB)
    grouped = _rows(spark).groupBy("key")
    _run_stream(grouped.transformWithStateInPandas(_Processor(), "key int", "Update", "None"))


def _run_stream(frame: Any) -> None:
    query = frame.writeStream.format("noop").outputMode("update").trigger(once=True).start()
    try:
        if not query.awaitTermination(_STREAM_SECONDS):
            raise RuntimeError(f"the query did not end within {_STREAM_SECONDS} seconds")
    finally:
        query.stop()


_BATCH_KINDS = {
    "RDD": _rdd,
    "barrier stage": _barrier,
    "function": _function,
    "analyze": _table_function,
    "data source": _read,
    "data sink": _write,
}
_STREAMING_KINDS = {
    "streaming source": _stream,
    "applyInPandasWithState": _state,
    "transformWithState": _transform,
}


def main() -> None:
    """Run each kind, one after the other."""
    confs = json.load(sys.stdin)
    confs.setdefault("spark.master", "local[2]")
    # A wrong setting fails at once, and not after several attempts.
    confs["spark.task.maxFailures"] = "1"
    with tempfile.TemporaryDirectory() as directory:
        is_local = confs["spark.master"].startswith("local")
        if is_local:
            confs.setdefault(_CHECKPOINTS, directory)
        spark = SparkSession.builder.appName("updraft doctor").config(map=confs).getOrCreate()
        try:
            spark.sparkContext.setLogLevel("OFF")
            spark.dataSource.register(_Source)
            for name, run in _BATCH_KINDS.items():
                _report(name, _problem(run, spark))
            for name, run in _STREAMING_KINDS.items():
                unplaced = "" if _CHECKPOINTS in confs else f"not tried, because {_CHECKPOINTS} is not set"
                _report(name, unplaced or _problem(run, spark))
        finally:
            spark.stop()


def _problem(run: Callable[[SparkSession], None], spark: SparkSession) -> str:
    try:
        run(spark)
    except Exception as error:
        # PySpark raises the same errors with many lines: the one that matters is somewhere in them.
        found = _ELSEWHERE.search(traceback.format_exc())
        return found[1] if found else str(error)
    return ""


def _report(name: str, problem: str) -> None:
    sys.stdout.write(json.dumps([name, problem]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
