# SPDX-License-Identifier: Apache-2.0
"""Spark application that starts a Python worker of each kind, for `updraft doctor --python-workers`.

The driver's Python runs this file by its path, so it imports nothing but PySpark. It prints JSON arrays, one per line:
a kind or another subject, then an outcome and a detail. The outcomes are `begun`, `ok`, `skipped`, `elsewhere` (the
code ran outside the pool) and `failed`.
"""

import json
import re
import socket
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.functions import lit, udf, udtf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeResult

_KIND_SECONDS = 180
_RECURSIVELY = True
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ENABLED = "spark.updraft.udf.enabled"
_ELSEWHERE = re.compile(r"RuntimeError: (the code ran in .+ on \S+ instead of on a pool)")
# Lines that tell the reason, the most telling first. Spark puts stack traces around them.
_REASONS = (
    re.compile(r"The worker on the pool failed: .*"),
    re.compile(r"updraft-python: .*"),
    re.compile(r"Cannot run program .*"),
    re.compile(r"(?<=Caused by: ).*"),
)


def _check() -> bool:
    """Return True in a worker of a pool; raise RuntimeError anywhere else."""
    if "updraft_server" not in sys.modules:
        raise RuntimeError(f"the code ran in {sys.executable} on {socket.gethostname()} instead of on a pool")
    return True


def _expect(found: object, wanted: object) -> None:
    """Raise RuntimeError unless the answer is right. An assertion would be left out with PYTHONOPTIMIZE."""
    if found != wanted:
        raise RuntimeError(f"the answer is {found!r} instead of {wanted!r}")


def _rdd(spark: SparkSession) -> None:
    _expect(spark.sparkContext.parallelize(range(2), 2).map(lambda _: _check()).collect(), [True, True])


def _barrier(spark: SparkSession) -> None:
    def wait(_numbers: Any) -> Iterator[bool]:
        BarrierTaskContext.get().barrier()
        yield _check()

    _expect(spark.sparkContext.parallelize(range(1), 1).barrier().mapPartitions(wait).collect(), [True])


def _function(spark: SparkSession) -> None:
    """Run a function in a worker that Spark starts: Updraft's operators would call the pool by themselves."""
    enabled = spark.conf.get(_ENABLED, None)
    spark.conf.set(_ENABLED, "false")
    try:
        rows = spark.range(1).select(udf(lambda _: _check(), "boolean")("id")).collect()
    finally:
        if enabled is None:
            spark.conf.unset(_ENABLED)
        else:
            spark.conf.set(_ENABLED, enabled)
    _expect([row[0] for row in rows], [True])


def _table_function(spark: SparkSession) -> None:
    class Analyzed:
        @staticmethod
        def analyze(_number: Any) -> AnalyzeResult:
            return AnalyzeResult(StructType().add("is_on_pool", "boolean", _check()))

        def eval(self, _number: Any) -> Iterator[Any]:
            yield (_check(),)

    _expect(udtf(Analyzed)(lit(1)).count(), 1)


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


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark names it
        _check()
        return {"offset": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 - PySpark names it
        return {"offset": 1}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (_check(),)


class _StreamWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        _check()
        list(iterator)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - PySpark names it
        _check()


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "updraft_doctor"

    def schema(self) -> str:
        _check()
        return "is_on_pool boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - PySpark passes it
        return _Writer()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark names it
        return _StreamReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - as PySpark calls it
        return _StreamWriter()


def _read(spark: SparkSession) -> None:
    _expect(spark.read.format(_Source.name()).load().count(), 1)


def _write(spark: SparkSession) -> None:
    spark.range(1).selectExpr("true AS is_on_pool").write.format(_Source.name()).mode("append").save()


def _stream_read(spark: SparkSession, checkpoint: str) -> None:
    _run_stream(spark.readStream.format(_Source.name()).load(), checkpoint)


def _stream_write(spark: SparkSession, checkpoint: str) -> None:
    _run_stream(_rows(spark).selectExpr("true AS is_on_pool"), checkpoint, _Source.name(), "append")


def _rows(spark: SparkSession) -> Any:
    """Return a stream that needs no Python and no files."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().withColumn("key", lit(1))


def _state(spark: SparkSession, checkpoint: str) -> None:
    def count(_key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        _check()
        state.update((1,))
        yield from (frame[["key"]] for frame in frames)

    grouped = _rows(spark).groupBy("key")
    counted = grouped.applyInPandasWithState(count, "key int", "n long", "update", GroupStateTimeout.NoTimeout)
    _run_stream(counted, checkpoint)


class _Processor(StatefulProcessor):
    def init(self, handle: Any) -> None:
        _check()
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - PySpark names them
        _check()
        self.seen.update((1,))
        yield from (frame[["key"]] for frame in rows)


def _transform(spark: SparkSession, checkpoint: str) -> None:
    spark.conf.set(_STORE, _ROCKSDB)
    grouped = _rows(spark).groupBy("key")
    _run_stream(grouped.transformWithStateInPandas(_Processor(), "key int", "Update", "None"), checkpoint)


def _run_stream(frame: Any, checkpoint: str, sink: str = "noop", mode: str = "update") -> None:
    writer = frame.writeStream.format(sink).outputMode(mode).option("checkpointLocation", checkpoint)
    query = writer.trigger(once=True).start()
    try:
        if not query.awaitTermination(_KIND_SECONDS):
            raise TimeoutError(f"the query did not end within {_KIND_SECONDS} seconds")
        _expect(query.lastProgress["numInputRows"] > 0, wanted=True)
    finally:
        query.stop()


_BATCH_KINDS = {
    "RDD": _rdd,
    "barrier stage": _barrier,
    "function": _function,
    "table function": _table_function,
    "data source": _read,
    "data sink": _write,
}
_STREAMING_KINDS = {
    "streaming source": _stream_read,
    "streaming sink": _stream_write,
    "applyInPandasWithState": _state,
    "transformWithState": _transform,
}


def main() -> None:
    """Run the kinds one after another. Spark takes its confs from the properties file of this application."""
    _report("application", "begun")
    try:
        spark = SparkSession.builder.appName("updraft doctor").getOrCreate()
    except Exception as error:
        _report("application", "failed", _reason(error))
        return
    spark.sparkContext.setLogLevel("OFF")
    _report("master", "ok", spark.sparkContext.master)
    spark.dataSource.register(_Source)
    with tempfile.TemporaryDirectory() as directory:
        try:
            _run_kinds(spark, directory)
            _report("application", "ok", "tried every kind")
        finally:
            spark.stop()


def _run_kinds(spark: SparkSession, directory: str) -> None:
    is_local = spark.sparkContext.master.startswith("local")
    is_dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true" and not is_local
    for kind, run in _BATCH_KINDS.items():
        if kind == "barrier stage" and is_dynamic:
            _report(kind, "skipped", "Spark runs no barrier stages with dynamic allocation")
        else:
            _run(kind, run, spark)
    shared = spark.conf.get(_CHECKPOINTS, None) or (Path(directory).as_uri() if is_local else None)
    if shared is None:
        for kind in _STREAMING_KINDS:
            _report(kind, "skipped", f"{_CHECKPOINTS} is not set")
        return
    checkpoints = f"{shared}/updraft-doctor-{uuid.uuid4()}"
    for number, (kind, stream) in enumerate(_STREAMING_KINDS.items()):
        _run(kind, stream, spark, f"{checkpoints}/{number}")
    try:
        _delete(spark, checkpoints)
    except Exception as error:
        _report("checkpoints", "failed", f"cannot delete {checkpoints}: {_reason(error)}")


def _run(kind: str, run: Callable[..., None], spark: SparkSession, *arguments: str) -> None:
    _report(kind, "begun")
    limit = threading.Timer(_KIND_SECONDS, spark.sparkContext.cancelAllJobs)
    limit.daemon = True
    limit.start()
    try:
        run(spark, *arguments)
        _report(kind, "ok")
    except Exception as error:
        if limit.finished.is_set():
            _report(kind, "failed", f"it did not end within {_KIND_SECONDS} seconds")
        elif found := _ELSEWHERE.search(traceback.format_exc()):
            _report(kind, "elsewhere", found[1])
        else:
            _report(kind, "failed", _reason(error))
    finally:
        limit.cancel()


def _reason(error: Exception) -> str:
    text = str(error)
    found = next((found for pattern in _REASONS if (found := pattern.findall(text))), None)
    lines = [line for line in text.splitlines() if line.strip()]
    return found[-1] if found else lines[0] if lines else type(error).__name__


def _delete(spark: SparkSession, directory: str) -> None:
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(directory)
    path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, _RECURSIVELY)


def _report(kind: str, outcome: str, detail: str = "") -> None:
    sys.stdout.write(json.dumps([kind, outcome, detail]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
