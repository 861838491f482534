# SPDX-License-Identifier: Apache-2.0
"""A small local Spark, stock or with the connector, and what its plans say about where UDFs run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import tests
from tests.support.paths import BUILD, PYTHON, connector_jar
from tests.support.waiting import HANG_SECONDS, until

SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
EXTENSION = "io.updraft.spark.UpdraftExtensions"
ENABLED = "spark.updraft.udf.enabled"
ENDPOINT = "spark.updraft.udf.endpoint"

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=200m -XX:+UseSerialGC"
"""Options of a JVM that ends before its second compiler has paid."""

_COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": str(BUILD / f"spark-warehouse-{pyspark.__version__}"),
}
_STOCK_OPERATOR = re.compile(
    r"\b(?:(?:Arrow|Batch)EvalPython(?:UDTF)?|(?:Python)?MapInArrow|MapInPandas|FlatMap(?:Co)?GroupsIn(?:Arrow|Pandas)"
    r"|ArrowAggregatePython|AggregateInPandas|ArrowWindowPython|WindowInPandas)\b"
)
_FLIGHT_OPERATOR = re.compile(r"\bFlight[A-Z]\w+\b")


# Functions of these modules travel whole, as those of a user's own script do: a pool has no copy of the tests.
cloudpickle.register_pickle_by_value(tests)


def local_spark(
    name: str, *, connector: bool, conf: Mapping[str, str] | None = None, python: Path = PYTHON
) -> SparkSession:
    """A session on local[2]; with the connector on its class path or as it is installed from PyPI.

    Spark starts `python` for its workers.
    """
    os.environ["PYSPARK_PYTHON"] = str(python)
    # The JVM would start some workers of the driver with that one.
    os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
    settings = dict(_SMALL)
    if connector:
        settings |= {"spark.jars": str(connector_jar()), "spark.sql.extensions": EXTENSION}
    settings |= conf or {}
    builder = SparkSession.builder.master(settings.pop("spark.master", "local[2]")).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def use_short_lived_jvms() -> None:
    """For each Spark that this process and its children start from now on: hardly a query of a test runs twice, and a
    second compiler, or a collector's threads, would only take the processors from the first.

    The first compiler alone has 48 MB for its code. What Spark generates for each query fills them, and code that is
    thrown out is compiled again; metaspace that begins at 21 MB is collected, with all of the heap, whenever it grows.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED_JVM


def stock_confs() -> dict[str, str]:
    """Runtime confs that a stock run needs to be an oracle at all.

    Stock 4.2 hangs for ever on an Arrow-optimised `udf` over a columnar child: its runner sends the schema before the
    UDFs, and the worker does not expect it. Without columnar input it takes the path that works.
    """
    return {_COLUMNAR_INPUT: "false"} if SPARK_VERSION < (4, 3) else {}


@contextmanager
def runtime_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set `confs` for the block and put back what was there."""
    before = {key: spark.conf.get(key, None) for key in confs}
    for key, value in confs.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def another_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the same application, with confs and catalogs of its own."""
    try:
        yield spark.newSession()
    finally:
        # The session that has made a frame of values last is the active one, by whose confs UDFs are planned.
        spark.createDataFrame([(0,)], "x int")


def wait_for_listeners(spark: SparkSession) -> None:
    """Until the status stores know of everything so far: they hear of a job or a query after it has ended."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(HANG_SECONDS * 1000))


def cancel_jobs(spark: SparkSession, timeout_seconds: float = HANG_SECONDS) -> None:
    """Cancel every job of the application and wait until none of its tasks runs; TimeoutError when one still does."""
    spark.sparkContext.cancelAllJobs()
    tracker = spark.sparkContext._jsc.sc().statusTracker()

    def is_idle() -> bool:
        running = sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())
        return running == 0 and len(tracker.getActiveJobIds()) == 0

    until("no task runs after all jobs were cancelled", is_idle, timeout_seconds=timeout_seconds)


def executed_plan(frame: DataFrame) -> str:
    """The physical plan as text; the final one when the frame has run."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def flight_operators(plan: str) -> list[str]:
    """Names of the operators of the connector in a plan."""
    return _FLIGHT_OPERATOR.findall(plan)


def stock_operators(plan: str) -> list[str]:
    """Names of Spark's own Python operators in a plan."""
    return _STOCK_OPERATOR.findall(_FLIGHT_OPERATOR.sub("", plan))
