# SPDX-License-Identifier: Apache-2.0
"""SQL metrics of the operators that run Python workers: rows, bytes and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType

from tests.support.spark import ENABLED, runtime_confs, stock_confs
from tests.workers.confs import application_confs
from tests.workers.scenario import scenario
from tests.workers.streams import visits

_ROWS = "numOutputRows"
# Start a new worker for each task, because Spark does not measure the start of a worker that it reuses.
_NEW_WORKERS = {"spark.python.worker.reuse": "false"}


def _metrics(spark: SparkSession, plan: JavaObject) -> list[Any]:
    """Return the metrics of the operators that run Python: the number of rows, and the metrics specific to Python."""
    java = spark._jvm.scala.jdk.javaapi.CollectionConverters
    metrics = {str(key): metric for key, metric in dict(java.asJava(plan.metrics())).items()}
    names = sorted(name for name in metrics if name.startswith("python") or name == _ROWS)
    found = []
    if names != [_ROWS] and names:
        found.append([str(plan.nodeName()), [_described(metrics[name]) for name in names]])
    for child in java.asJava(plan.children()):
        found += _metrics(spark, child)
    return found


def _described(metric: JavaObject) -> list[Any]:
    """Return the metric's description, and its value; for a time, whether it is not zero."""
    is_time = metric.metricType() == "timing"
    return [str(metric.name().get()), not metric.isZero() if is_time else metric.value()]


def _of_query(spark: SparkSession, query: Callable[[DataFrame], DataFrame]) -> Any:
    """Run a query on numbers; return the number of rows and the metrics of the query's operators."""
    with runtime_confs(spark, {ENABLED: "false", **stock_confs()}), application_confs(spark, _NEW_WORKERS):
        frame = query(spark.range(0, 500, 1, 2).selectExpr("id", "concat('text ', id) AS text"))
        rows = len(frame.collect())
    found = _metrics(spark, frame._jdf.queryExecution().executedPlan())
    assert found, "no operator has metrics of Python"
    return rows, found


@scenario(everyday=True)
def pickled_function(spark: SparkSession) -> Any:
    shout = F.udf(lambda text, number: text.upper() * number, "string", useArrow=False)
    return _of_query(spark, lambda table: table.select(shout("text", "id")))


@scenario()
def arrow_function(spark: SparkSession) -> Any:
    @F.pandas_udf("string")
    def shout(texts: pd.Series) -> pd.Series:
        return texts.str.upper()

    return _of_query(spark, lambda table: table.select(shout("text")))


@scenario()
def map_in_pandas(spark: SparkSession) -> Any:
    def halved(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in parts:
            yield part[part["id"] % 2 == 0]

    return _of_query(spark, lambda table: table.mapInPandas(halved, "id long, text string"))


class _Numbers(DataSource):
    """Data source of fifty numbers in two partitions."""

    @classmethod
    def name(cls) -> str:
        return "measured_numbers"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(20), InputPartition(30)]

    def read(self, partition: Any) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(partition.value)])


@scenario()
def data_source(spark: SparkSession) -> Any:
    """Return whether bytes were counted, because in local mode Spark adds up the bytes of all reads, which vary."""
    spark.dataSource.register(_Numbers)
    rows, [[scan, found]] = _of_query(spark, lambda _: spark.read.format("measured_numbers").load())
    return rows, scan, [[name, value > 0 if name.startswith("data ") else value] for name, value in found]


@scenario()
def state_of_keys(spark: SparkSession) -> Any:
    """Return the metrics of the last batch of a stream."""

    def counted(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(part) for part in parts)
        state.update((seen,))
        yield pd.DataFrame({"name": [key[0]], "seen": [seen]})

    out = "name string, seen long"
    grouped = visits(spark).groupBy("name")
    stream = grouped.applyInPandasWithState(counted, out, "seen long", "update", "NoTimeout")
    with application_confs(spark, _NEW_WORKERS):
        query = stream.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start()
        query.awaitTermination()
    return _metrics(spark, query._jsq.streamingQuery().lastExecution().executedPlan())
