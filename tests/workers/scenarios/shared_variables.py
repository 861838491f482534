# SPDX-License-Identifier: Apache-2.0
"""Accumulators and broadcast variables."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


class _Words(AccumulatorParam[list[str]]):
    """Sorted words."""

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802
        return sorted(value1 + value2)


@scenario(everyday=True)
def accumulators_of_numbers(spark: SparkSession) -> Any:
    context = spark.sparkContext
    whole, floating, complex_ = context.accumulator(5), context.accumulator(0.5), context.accumulator(1j)

    def add(number: int) -> int:
        nonlocal whole, floating
        whole += number
        floating += number / 4
        complex_.add(complex(number, 1))
        return number

    count = numbers(spark).map(add).count()
    return count, whole.value, floating.value, repr(complex_.value)


@scenario()
def accumulator_of_a_class(spark: SparkSession) -> Any:
    words = spark.sparkContext.accumulator([], _Words())
    numbers(spark, 30).foreach(lambda n: words.add([f"word {n}"]))
    return words.value


@scenario()
def accumulator_over_several_jobs(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)
    for _ in range(3):
        numbers(spark, 100, 2).foreach(lambda n: total.add(1))
    return total.value


@scenario()
def accumulator_of_a_task_that_is_repeated(spark: SparkSession) -> Any:
    from pyspark import TaskContext

    total = spark.sparkContext.accumulator(0)

    def add(part: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        total.add(1)
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise ValueError("the first attempt")
        yield sum(part)

    return numbers(spark, 100, 3).mapPartitions(add).collect(), total.value


@scenario()
def accumulator_read_in_a_task(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)
    return failure(lambda: numbers(spark, 10).map(lambda n: total.value).collect())


@scenario(everyday=True)
def broadcast(spark: SparkSession) -> Any:
    known = spark.sparkContext.broadcast({n: f"text {n}" for n in range(100)})
    return numbers(spark, 100).map(lambda n: known.value[n]).collect()


@scenario()
def large_broadcast(spark: SparkSession) -> Any:
    data = spark.sparkContext.broadcast(random.Random(1).randbytes(12 << 20))
    return numbers(spark, 4, 4).map(lambda n: hashlib.sha256(data.value).hexdigest()).collect()


@scenario()
def several_broadcasts(spark: SparkSession) -> Any:
    context = spark.sparkContext
    all_ = [context.broadcast([number] * number) for number in range(12)]
    chosen = all_[::2]
    return numbers(spark, 12).map(lambda n: sum(sum(one.value) for one in chosen) + n).collect()


@scenario()
def broadcasts_that_change_between_tasks(spark: SparkSession) -> Any:
    """Use other broadcast variables in each task, so that workers that Spark reuses drop some and receive others."""
    found = []
    kept = spark.sparkContext.broadcast("kept")
    for number in range(4):
        fresh = spark.sparkContext.broadcast(f"fresh {number}")
        found.append(numbers(spark, 4, 2).map(lambda n, fresh=fresh: (kept.value, fresh.value, n)).collect())
        fresh.destroy(blocking=True)
    return found


@scenario()
def broadcast_that_spark_has_to_send_again(spark: SparkSession) -> Any:
    kept, value = spark.sparkContext.broadcast("kept"), spark.sparkContext.broadcast("value")
    found = [numbers(spark, 4, 2).map(lambda n: (kept.value, value.value, n)).collect()]
    value.unpersist(blocking=True)
    found.append(numbers(spark, 2, 2).map(lambda n: kept.value).collect())
    found.append(numbers(spark, 2, 2).map(lambda n: value.value).collect())
    return found


@scenario()
def destroyed_broadcast(spark: SparkSession) -> Any:
    gone = spark.sparkContext.broadcast([1, 2, 3])
    rdd = numbers(spark, 4).map(lambda n: gone.value)
    before = rdd.collect()
    gone.destroy(blocking=True)
    return before, type(failure(rdd.collect)).__name__


@scenario()
def broadcast_in_a_nested_function(spark: SparkSession) -> Any:
    table = spark.sparkContext.broadcast({"a": 1})

    class Lookup:
        def __init__(self) -> None:
            self.table = table

        def __call__(self, number: int) -> int:
            return int(self.table.value["a"]) + number

    return numbers(spark, 10).map(Lookup()).collect()


@scenario()
def broadcast_on_disk(spark: SparkSession) -> Any:
    """Return whether the disk contains the value in plain text while workers use the value."""
    context = spark.sparkContext
    text = "text of a broadcast variable" * 100
    value = context.broadcast(text)
    lengths = numbers(spark, 4, 2).map(lambda n: len(value.value)).collect()
    files = [path for path in Path(context.getConf().get("spark.local.dir", "")).rglob("*") if path.is_file()]
    return lengths, any(text.encode() in path.read_bytes() for path in files)


@scenario()
def large_function(spark: SparkSession) -> Any:
    """Ship a closure of 3 MB, which Spark sends as a broadcast variable."""
    ballast = random.Random(2).randbytes(3 << 20)
    return numbers(spark, 4, 2).map(lambda n: (n, len(ballast), ballast[n])).collect()
