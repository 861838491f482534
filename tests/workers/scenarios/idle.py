# SPDX-License-Identifier: Apache-2.0
"""Workers that Spark regards as idle. Spark logs idle workers, and kills them if a setting asks for that."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from tests.support.spark import ENABLED, runtime_confs
from tests.support.waiting import HANG_SECONDS, until
from tests.workers.confs import application_confs
from tests.workers.directories import new_directory
from tests.workers.failures import failure, steady
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers
from tests.workers.sides import log_of_the_application

_OF_FUNCTIONS, _OF_RDDS = "spark.sql.execution.pyspark.udf", "spark.python.worker"
_WARNING = re.compile(r"WARN \S+: Idle timeout reached for Python (?:planner )?worker \(timeout.*")


def _confs(prefix: str, seconds: int, *, kill: bool) -> dict[str, str]:
    confs = {ENABLED: "false", f"{prefix}.idleTimeoutSeconds": str(seconds)}
    # Set killOnIdleTimeout only if needed, because Spark 4.0 does not have this setting.
    return confs | ({f"{prefix}.killOnIdleTimeout": "true"} if kill else {})


def _sleep(value: Any) -> Any:
    time.sleep(600)
    return value


@scenario(everyday=True, since=(4, 1))
def function_that_is_idle_for_too_long(spark: SparkSession) -> Any:
    sleep = F.udf(_sleep, "long")
    with runtime_confs(spark, _confs(_OF_FUNCTIONS, 1, kill=True)):
        found = failure(lambda: spark.range(0, 4, 1, 1).select(sleep("id")).collect())
        return found, spark.range(0, 4, 1, 1).select(F.udf(lambda n: n + 1, "long")("id")).collect()


@scenario(since=(4, 1))
def map_in_pandas_that_is_idle_for_too_long(spark: SparkSession) -> Any:
    with runtime_confs(spark, _confs(_OF_FUNCTIONS, 1, kill=True)):
        return failure(
            lambda: spark.range(0, 4, 1, 1).mapInPandas(lambda parts: map(_sleep, parts), "id long").collect()
        )


@scenario(since=(4, 1))
def rdd_that_is_idle_for_too_long(spark: SparkSession) -> Any:
    with application_confs(spark, _confs(_OF_RDDS, 1, kill=True)):
        found = failure(lambda: numbers(spark, 4, 1).map(_sleep).collect())
        return found, numbers(spark, 4).map(lambda n: n + 1).sum()


@scenario(since=(4, 1))
def analyze_that_is_idle_for_too_long(spark: SparkSession) -> Any:
    class Idle:
        @staticmethod
        def analyze(value: AnalyzeArgument) -> AnalyzeResult:
            time.sleep(600)
            return AnalyzeResult(StructType().add("value", value.dataType))

        def eval(self, value: Any) -> Iterator[Any]:
            yield (value,)

    spark.udtf.register("idle", F.udtf(Idle))
    with runtime_confs(spark, _confs(_OF_FUNCTIONS, 1, kill=True)):
        return failure(lambda: spark.sql("SELECT * FROM idle(1)").collect())


@scenario(since=(4, 1))
def data_source_that_is_idle_for_too_long(spark: SparkSession) -> Any:
    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            yield (_sleep(1),)

    class Idle(DataSource):
        @classmethod
        def name(cls) -> str:
            return "idle_source"

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Idle)
    frame = spark.read.format("idle_source").load()
    with runtime_confs(spark, _confs(_OF_FUNCTIONS, 1, kill=True)):
        return failure(frame.collect)


def _until_logged(job: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """Run a job whose function is idle until Spark has logged the idle worker. Return the log line and the result."""
    logged = new_directory() / "logged"

    def wait(value: Any) -> Any:
        end = time.monotonic() + HANG_SECONDS
        while not Path(logged).exists() and time.monotonic() < end:
            time.sleep(0.05)
        return value

    before = len(log_of_the_application())
    with ThreadPoolExecutor() as threads:
        result = threads.submit(job, wait)
        try:
            line = until("Spark has logged the idle worker", lambda: _WARNING.search(log_of_the_application()[before:]))
        finally:
            logged.touch()
        return steady(line.group()), result.result()


@scenario()
def function_that_is_idle_is_logged(spark: SparkSession) -> Any:
    with runtime_confs(spark, _confs(_OF_FUNCTIONS, 1, kill=False)):
        frame = spark.range(0, 4, 1, 1)
        return _until_logged(lambda wait: frame.select(F.udf(wait, "long")("id")).collect())


@scenario()
def rdd_that_is_idle_is_logged(spark: SparkSession) -> Any:
    rdd = numbers(spark, 4, 1)
    with application_confs(spark, _confs(_OF_RDDS, 1, kill=False)):
        return _until_logged(lambda wait: rdd.map(wait).collect())


@scenario(since=(4, 1))
def slow_function_that_is_not_idle(spark: SparkSession) -> Any:
    """Return each row within the idle timeout, but all rows in a longer time than the timeout."""

    def slowly(part: Iterable[int]) -> Iterator[bytes]:
        for number in part:
            time.sleep(0.5)
            # PySpark's worker buffers less than 64 KiB, so the worker sends each row at once.
            yield bytes([number]) * (1 << 17)

    with application_confs(spark, _confs(_OF_RDDS, 5, kill=True)):
        return [len(row) for row in numbers(spark, 14, 1).mapPartitions(slowly).collect()]
