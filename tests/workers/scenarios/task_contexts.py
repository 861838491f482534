# SPDX-License-Identifier: Apache-2.0
"""TaskContext, and other information that a task can request."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


@scenario(everyday=True)
def values_of_a_task(spark: SparkSession) -> Any:
    def values(_: Any) -> Any:
        context = _context()
        yield context.partitionId(), context.attemptNumber(), context.cpus(), dict(context.resources())

    return numbers(spark, 10, 4).mapPartitions(values).collect()


@scenario()
def ids_of_tasks_differ(spark: SparkSession) -> Any:
    rdd = numbers(spark, 10, 4).mapPartitions(lambda _: [(_context().stageId(), _context().taskAttemptId())])
    ids = rdd.collect() + rdd.collect()
    return len(set(ids)), len({stage for stage, _ in ids})


@scenario()
def local_properties(spark: SparkSession) -> Any:
    context = spark.sparkContext
    context.setLocalProperty("team", "search")
    context.setJobGroup("a group", "a description")
    names = ("team", "spark.jobGroup.id", "spark.job.description", "no.such.property")
    try:
        return numbers(spark, 2, 2).map(lambda n: [_context().getLocalProperty(name) for name in names]).collect()
    finally:
        context.setLocalProperty("team", None)


@scenario()
def attempts_of_a_task(spark: SparkSession) -> Any:
    def attempt(_: Any) -> Any:
        if _context().attemptNumber() == 0:
            raise ValueError("the first attempt")
        yield _context().attemptNumber()

    return numbers(spark, 10, 2).mapPartitions(attempt).collect()


@scenario()
def context_of_the_driver(spark: SparkSession) -> Any:
    return TaskContext.get() is None


@scenario()
def spark_in_a_task(spark: SparkSession) -> Any:
    """Use the driver's session in a task; PySpark refuses this."""
    try:
        numbers(spark, 1).map(lambda n: spark.range(n).count()).collect()
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    raise AssertionError("a task has used the session")


@scenario()
def new_context_in_a_task(spark: SparkSession) -> Any:
    def start(number: int) -> int:
        from pyspark import SparkContext

        return int(SparkContext.getOrCreate().defaultParallelism)

    return failure(lambda: numbers(spark, 1, 1).map(start).collect())
