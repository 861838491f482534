# SPDX-License-Identifier: Apache-2.0
"""Small local Spark, stock or with the connector, and what its plans say about where UDFs run."""

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

CLASSES_OF_SPARK = BUILD / f"jvm/spark-{SPARK_VERSION[0]}.{SPARK_VERSION[1]}.jsa"
"""Archive of Spark's classes, which `tests.support.shared_classes` makes."""
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# If Java cannot use the archive (for example because the class path differs), it warns and loads the classes one by
# one. If the option named no file, Java would not use its own archive either.
_SHARED_CLASSES = f"-XX:SharedArchiveFile={CLASSES_OF_SPARK} -Xlog:cds=off -Xlog:cds+dynamic=off"
SHORT_LIVED_JVM = f"{_SMALL_JVM} -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=200m" + (
    f" {_SHARED_CLASSES}" if CLASSES_OF_SPARK.exists() else ""
)
"""Options for a JVM that ends before the second compiler would save time."""

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


# Pickle functions of these modules by value, like functions of a user's script, because a pool has no copy of the
# tests.
cloudpickle.register_pickle_by_value(tests)


def local_spark(
    name: str, *, connector: bool, conf: Mapping[str, str] | None = None, python: Path = PYTHON
) -> SparkSession:
    """Start a session on local[2], with or without the connector on its class path.

    Spark starts `python` for its workers.
    """
    os.environ["PYSPARK_PYTHON"] = str(python)
    # The JVM starts some of the driver's workers with this Python.
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
    """Use SHORT_LIVED_JVM for each Spark that this process and its children start from now on.

    Few queries of a test run twice, so a second compiler or a collector's threads would only take cores from the first
    compiler. The first compiler alone has 48 MB for its code. The code that Spark generates for each query fills this
    space, and evicted code is compiled again. If Metaspace starts at 21 MB, each growth triggers a collection of the
    whole heap.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED_JVM
    # Options of the JVM that builds the command line of Spark's JVM.
    os.environ["SPARK_LAUNCHER_OPTS"] = _SMALL_JVM


def stock_confs() -> dict[str, str]:
    """Return the runtime confs that make stock usable as an oracle.

    Stock 4.2 hangs forever on an Arrow-optimized `udf` over a columnar child: its runner sends the schema before the
    UDFs, and the worker does not expect the schema. Without columnar input, Spark takes a path that works.
    """
    return {_COLUMNAR_INPUT: "false"} if SPARK_VERSION < (4, 3) else {}


@contextmanager
def runtime_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set `confs` for the block and restore the previous values."""
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
    """Yield a session of the same application with its own confs and catalogs."""
    try:
        yield spark.newSession()
    finally:
        # Spark plans UDFs with the confs of the active session: the session that last created a frame of values.
        spark.createDataFrame([(0,)], "x int")


def wait_for_listeners(spark: SparkSession) -> None:
    """Wait until the status stores contain all jobs and queries so far. Spark updates them with a delay."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(HANG_SECONDS * 1000))


def cancel_jobs(spark: SparkSession, timeout_seconds: float = HANG_SECONDS) -> None:
    """Cancel every job of the application and wait until no task runs; raise TimeoutError if a task still runs."""
    spark.sparkContext.cancelAllJobs()
    tracker = spark.sparkContext._jsc.sc().statusTracker()

    def is_idle() -> bool:
        running = sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())
        return running == 0 and len(tracker.getActiveJobIds()) == 0

    until("no task runs after all jobs were cancelled", is_idle, timeout_seconds=timeout_seconds)


def executed_plan(frame: DataFrame) -> str:
    """Return the physical plan as text; the final one if the frame has run."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def flight_operators(plan: str) -> list[str]:
    """Return the names of the connector's operators in a plan."""
    return _FLIGHT_OPERATOR.findall(plan)


def stock_operators(plan: str) -> list[str]:
    """Return the names of Spark's own Python operators in a plan."""
    return _STOCK_OPERATOR.findall(_FLIGHT_OPERATOR.sub("", plan))
