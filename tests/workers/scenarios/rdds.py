# SPDX-License-Identifier: Apache-2.0
"""RDDs whose functions map, filter and combine elements without keys."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark import RDD
from pyspark.sql import SparkSession

from tests.workers.scenario import scenario


def numbers(spark: SparkSession, count: int = 1000, partitions: int = 3) -> RDD[int]:
    """Return the numbers below `count`."""
    return spark.sparkContext.parallelize(range(count), partitions)


@scenario(everyday=True)
def map_elements(spark: SparkSession) -> Any:
    factor = 7
    return numbers(spark).map(lambda n: n * factor).collect()


@scenario()
def map_in_a_chain(spark: SparkSession) -> Any:
    chain = numbers(spark)
    for step in range(20):
        chain = chain.map(lambda n, step=step: n * 3 % 1009 + step)
    return chain.collect()


@scenario()
def flat_map(spark: SparkSession) -> Any:
    return numbers(spark, 50).flatMap(lambda n: [n] * (n % 4)).collect()


@scenario()
def filter_elements(spark: SparkSession) -> Any:
    return numbers(spark).filter(lambda n: n % 7 == 3).collect()


@scenario()
def map_partitions(spark: SparkSession) -> Any:
    return numbers(spark).mapPartitions(lambda part: [sum(part)]).collect()


@scenario()
def map_partitions_that_leave_input_unread(spark: SparkSession) -> Any:
    rdd = numbers(spark, 100_000, 4).cache()
    try:
        return [rdd.mapPartitions(lambda part: list(islice(part, 2))).collect() for _ in range(3)]
    finally:
        rdd.unpersist(blocking=True)


@scenario()
def map_partitions_with_index(spark: SparkSession) -> Any:
    def tagged(index: int, part: Iterator[int]) -> Iterator[tuple[int, int]]:
        for number in part:
            yield index, number

    return numbers(spark, 20).mapPartitionsWithIndex(tagged).collect()


@scenario()
def glom(spark: SparkSession) -> Any:
    return numbers(spark, 20, 6).glom().collect()


@scenario()
def reduce(spark: SparkSession) -> Any:
    return numbers(spark).reduce(operator.add)


@scenario()
def tree_reduce(spark: SparkSession) -> Any:
    return numbers(spark, 1000, 9).treeReduce(operator.add, depth=3)


@scenario()
def fold(spark: SparkSession) -> Any:
    return numbers(spark).fold(0, operator.add)


@scenario(everyday=True)
def aggregate(spark: SparkSession) -> Any:
    return numbers(spark).aggregate(
        (0, 0), lambda found, n: (found[0] + n, found[1] + 1), lambda a, b: (a[0] + b[0], a[1] + b[1])
    )


@scenario()
def tree_aggregate(spark: SparkSession) -> Any:
    return numbers(spark, 1000, 9).treeAggregate(0, operator.add, operator.add, depth=3)


@scenario()
def sort_by(spark: SparkSession) -> Any:
    return numbers(spark).sortBy(lambda n: n * 7919 % 1000).collect()


@scenario()
def sort_by_descending(spark: SparkSession) -> Any:
    return numbers(spark).sortBy(lambda n: (n % 10, str(n)), ascending=False, numPartitions=4).glom().collect()


@scenario()
def distinct(spark: SparkSession) -> Any:
    return sorted(numbers(spark).map(lambda n: f"text {n % 13}").distinct().collect())


@scenario()
def union(spark: SparkSession) -> Any:
    return numbers(spark, 10).union(spark.sparkContext.parallelize(["a", None, 1.5], 2)).collect()


@scenario()
def intersection(spark: SparkSession) -> Any:
    return sorted(numbers(spark, 100).intersection(numbers(spark, 200).filter(lambda n: n % 9 == 0)).collect())


@scenario()
def subtract(spark: SparkSession) -> Any:
    return sorted(numbers(spark, 50).subtract(numbers(spark, 200).filter(lambda n: n % 3 == 0)).collect())


@scenario()
def cartesian(spark: SparkSession) -> Any:
    left, right = numbers(spark, 12, 2), spark.sparkContext.parallelize("abc", 2)
    return left.map(str).cartesian(right.map(str.upper)).map("".join).collect()


@scenario()
def zip_elements(spark: SparkSession) -> Any:
    rdd = numbers(spark, 100)
    return rdd.map(str).zip(rdd.map(lambda n: -n)).collect()


@scenario()
def zip_with_other_batches(spark: SparkSession) -> Any:
    left = numbers(spark, 100, 2).map(lambda n: n)
    right = spark.sparkContext.parallelize(range(100), 2)
    return left._reserialize().zip(right).collect()


@scenario()
def zip_with_index(spark: SparkSession) -> Any:
    return numbers(spark, 40).map(str).zipWithIndex().collect()


@scenario()
def zip_with_unique_id(spark: SparkSession) -> Any:
    return numbers(spark, 40).map(str).zipWithUniqueId().collect()


@scenario()
def coalesce(spark: SparkSession) -> Any:
    return numbers(spark, 40, 8).map(str).coalesce(3).glom().collect()


@scenario()
def repartition(spark: SparkSession) -> Any:
    parts = numbers(spark, 5000, 2).map(str).repartition(7).glom().collect()
    return [len(part) for part in parts], sorted(text for part in parts for text in part)


@scenario()
def key_by_and_group_by(spark: SparkSession) -> Any:
    grouped = numbers(spark, 100).groupBy(lambda n: f"key {n % 7}").mapValues(sorted)
    return sorted(grouped.collect()), sorted(numbers(spark, 20).keyBy(lambda n: n % 3).collect())


@scenario(everyday=True)
def pipe(spark: SparkSession) -> Any:
    return numbers(spark, 30).map(lambda n: f"line {n}").pipe("tr a-z A-Z").collect()


@scenario()
def pipe_with_a_variable(spark: SparkSession) -> Any:
    return numbers(spark, 4).pipe("sh -c 'while read n; do echo $WORD $n; done'", env={"WORD": "number"}).collect()


@scenario()
def sample(spark: SparkSession) -> Any:
    rdd = numbers(spark)
    return rdd.sample(False, 0.1, seed=7).collect(), rdd.sample(True, 0.05, seed=7).collect()


@scenario()
def take_sample(spark: SparkSession) -> Any:
    return numbers(spark).takeSample(False, 20, seed=3)


@scenario()
def sample_by_key(spark: SparkSession) -> Any:
    pairs = numbers(spark).map(lambda n: (n % 2, n))
    return pairs.sampleByKey(False, {0: 0.05, 1: 0.1}, seed=5).collect()


@scenario()
def random_split(spark: SparkSession) -> Any:
    return [part.collect() for part in numbers(spark, 100).randomSplit([1, 3], seed=11)]


@scenario()
def elements_of_many_types(spark: SparkSession) -> Any:
    from datetime import date, datetime
    from decimal import Decimal

    values: list[Any] = [
        None,
        True,
        1,
        2**70,
        1.5,
        "ä\0",
        b"\0\xff",
        [1, [2]],
        {"a": (1, 2)},
        Decimal("1.10"),
        date(2026, 1, 2),
    ]
    values += [datetime(2026, 1, 2, 3, 4, 5, 6), {1, 2}, float("inf"), complex(1, 2)]
    return spark.sparkContext.parallelize(values, 2).map(lambda value: (type(value).__name__, repr(value))).collect()
