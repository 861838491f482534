# SPDX-License-Identifier: Apache-2.0
"""Actions on RDDs, and the results that the driver receives."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


@scenario()
def take(spark: SparkSession) -> Any:
    rdd = numbers(spark, 10_000, 10).map(lambda n: n * 2)
    return rdd.take(3), rdd.take(1500), rdd.filter(lambda n: n > 19_000).take(5), rdd.take(0)


@scenario()
def first_and_is_empty(spark: SparkSession) -> Any:
    rdd = numbers(spark).map(str)
    return rdd.first(), rdd.isEmpty(), rdd.filter(lambda text: text == "no number").isEmpty()


@scenario()
def count(spark: SparkSession) -> Any:
    return numbers(spark).map(str).count()


@scenario()
def count_approximately(spark: SparkSession) -> Any:
    rdd = numbers(spark).map(lambda n: n % 100)
    return rdd.countApprox(60_000), float(rdd.sumApprox(60_000)), rdd.countApproxDistinct(0.05)


@scenario()
def top_and_take_ordered(spark: SparkSession) -> Any:
    rdd = numbers(spark)
    return rdd.top(5), rdd.top(3, key=str), rdd.takeOrdered(4, key=lambda n: -(n % 17)), rdd.takeOrdered(2)


@scenario()
def statistics(spark: SparkSession) -> Any:
    rdd = numbers(spark).map(lambda n: n / 8)
    stats = rdd.stats()
    return stats.count(), stats.mean(), stats.sampleStdev(), rdd.max(), rdd.min(), rdd.sum(), rdd.variance()


@scenario()
def histogram(spark: SparkSession) -> Any:
    rdd = numbers(spark)
    return rdd.histogram(4), rdd.histogram([0, 10, 500, 999])


@scenario()
def count_by_value(spark: SparkSession) -> Any:
    return sorted(numbers(spark).map(lambda n: f"text {n % 5}").countByValue().items())


@scenario()
def foreach(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)
    numbers(spark).foreach(lambda n: total.add(n))
    return total.value


@scenario()
def foreach_partition(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)

    def add(part: Any) -> None:
        total.add(sum(part) + 1)

    numbers(spark).foreachPartition(add)
    return total.value


@scenario(everyday=True)
def to_local_iterator(spark: SparkSession) -> Any:
    rdd = numbers(spark, 5000, 5).map(lambda n: n + 1)
    return [list(rdd.toLocalIterator()) == list(range(1, 5001)), sum(rdd.toLocalIterator(prefetchPartitions=True))]


@scenario()
def to_local_iterator_that_stops_early(spark: SparkSession) -> Any:
    rdd = numbers(spark, 5000, 5).map(lambda n: n + 1)
    iterator = rdd.toLocalIterator()
    return [next(iterator) for _ in range(1200)][-1], rdd.count()


@scenario()
def collect_with_a_job_group(spark: SparkSession) -> Any:
    return numbers(spark, 20).map(str).collectWithJobGroup("a group", "a description", False)


@scenario()
def run_job_on_some_partitions(spark: SparkSession) -> Any:
    return spark.sparkContext.runJob(numbers(spark, 50, 5), lambda part: [sum(part)], [1, 3])


@scenario()
def describe_lineage(spark: SparkSession) -> Any:
    rdd = numbers(spark).map(str).setName("named")
    return rdd.name(), rdd.getNumPartitions(), rdd.map(len).sum()
