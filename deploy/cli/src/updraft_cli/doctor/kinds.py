# SPDX-License-Identifier: Apache-2.0
"""Spark application that starts a Python worker of each kind, for `updraft doctor --python-workers`.

The driver's Python runs this file by its path, so it imports only PySpark and a file in the same directory. The
application prints JSON arrays, one per line: a kind or another subject, then an outcome and a detail. The outcomes are
`begun`, `ok`, `skipped`, `elsewhere` (the code ran outside the pool), `late` (the code did not end within its time
limit) and `failed`.
"""

import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from py4j.java_gateway import JavaClass
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

_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ENABLED = "spark.updraft.udf.enabled"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$"
_AUTHENTICATION = "spark.connect.authenticate.token"


def _loaded(name: str) -> Any:
    """Load the file of this name from this directory. The driver's Python may lack the package `updraft_cli`."""
    loader = SourceFileLoader(f"updraft_doctor_{name}", str(Path(__file__).with_name(f"{name}.py")))
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


trial = _loaded("trial")


def _check() -> bool:
    """Return True in a worker of a pool; raise RuntimeError anywhere else."""
    if "updraft_server" not in sys.modules:
        raise RuntimeError(f"the code ran in {sys.executable} on {socket.gethostname()} instead of on a pool")
    return True


def _expect(found: object, wanted: object) -> None:
    """Raise RuntimeError unless the answer is right. Python skips assertions if PYTHONOPTIMIZE is set."""
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
    """Run a function in a worker that Spark starts, without Updraft's operators, which would call the pool directly."""
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
    _run_stream(_to_nowhere(spark.readStream.format(_Source.name()).load()), checkpoint)


def _stream_write(spark: SparkSession, checkpoint: str) -> None:
    _run_stream(_rows(spark).selectExpr("true AS is_on_pool").writeStream.format(_Source.name()), checkpoint)


def _rows(spark: Any) -> Any:
    """Return a stream that needs no Python and no files."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().selectExpr("*", "1 AS key")


def _state(spark: SparkSession, checkpoint: str) -> None:
    def count(_key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        _check()
        state.update((1,))
        yield from (frame[["key"]] for frame in frames)

    grouped = _rows(spark).groupBy("key")
    counted = grouped.applyInPandasWithState(count, "key int", "n long", "update", GroupStateTimeout.NoTimeout)
    _run_stream(_to_nowhere(counted), checkpoint)


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
    _run_stream(_to_nowhere(grouped.transformWithStateInPandas(_Processor(), "key int", "Update", "None")), checkpoint)


def _foreach_batch(spark: SparkSession, checkpoint: str) -> None:
    def count(batch: Any, _number: int) -> None:
        _check()
        # To count, the worker has to reach the Connect server.
        _expect(batch.count(), 2)

    client = _connect_client(spark)
    try:
        _run_stream(_rows(client).writeStream.foreachBatch(count), checkpoint)
    finally:
        client.stop()


def _connect_client(spark: SparkSession) -> Any:
    """Start a Spark Connect server in this application, and return a client of it."""
    try:
        from pyspark.sql.connect.session import SparkSession as Client
    except ImportError as error:
        raise trial.SkippedError(f"the driver's Python cannot import PySpark's Connect client: {error}") from error
    # Start the server here, not as a plugin of the application: a missing plugin would keep all kinds from running.
    service = getattr(spark._jvm, _CONNECT)
    if not isinstance(service, JavaClass):
        raise trial.SkippedError("Spark's Connect server (spark-connect_*.jar) is not on the driver's class path")
    server = getattr(service, "MODULE$")
    server.start(spark.sparkContext._jsc.sc())
    token = spark.sparkContext.getConf().get(_AUTHENTICATION)
    return Client.builder.remote(f"sc://localhost:{server.localPort()}/;token={token}").create()


def _to_nowhere(frame: Any) -> Any:
    return frame.writeStream.format("noop").outputMode("update")


def _run_stream(writer: Any, checkpoint: str) -> None:
    query = writer.option("checkpointLocation", checkpoint).trigger(once=True).start()
    try:
        query.awaitTermination()
        _expect(query.lastProgress.numInputRows > 0, wanted=True)
    finally:
        query.stop()


Kinds = Mapping[str, Callable[..., None]]
BATCH_KINDS: Kinds = {
    "RDD": _rdd,
    "barrier stage": _barrier,
    "function": _function,
    "table function": _table_function,
    "data source": _read,
    "data sink": _write,
}
STREAMING_KINDS: Kinds = {
    "streaming source": _stream_read,
    "streaming sink": _stream_write,
    "applyInPandasWithState": _state,
    "transformWithState": _transform,
    "foreachBatch": _foreach_batch,
}


def main(limits: Any, batch_kinds: Kinds = BATCH_KINDS, streaming_kinds: Kinds = STREAMING_KINDS) -> None:
    """Try the kinds, and end this process. Spark takes its confs from the properties file of this application."""
    try:
        _main(limits, batch_kinds, streaming_kinds)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Threads of hanging kinds would keep Python from exiting.
    os._exit(0)


def _main(limits: Any, batch_kinds: Kinds, streaming_kinds: Kinds) -> None:
    trial.report("application", "begun")
    try:
        spark = SparkSession.builder.appName("updraft doctor").getOrCreate()
    except Exception as error:
        trial.report("application", "failed", trial.reason(error))
        return
    spark.sparkContext.setLogLevel("OFF")
    trial.report("master", "ok", spark.sparkContext.master)
    spark.dataSource.register(_Source)
    with tempfile.TemporaryDirectory() as directory:
        try:
            trial.Trial(spark, limits).run(batch_kinds, streaming_kinds, directory)
            trial.report("application", "ok", "tried every kind")
        finally:
            trial.stop(spark, limits)


if __name__ == "__main__":
    main(trial.Limits())
