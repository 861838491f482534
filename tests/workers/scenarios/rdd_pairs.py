# SPDX-License-Identifier: Apache-2.0
"""RDDs of pairs: shuffles, joins, and hashes of keys."""

from __future__ import annotations

import operator
from typing import Any

from pyspark import RDD
from pyspark.rdd import portable_hash
from pyspark.sql import SparkSession

from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


def pairs(spark: SparkSession, count: int = 1000, keys: int = 11) -> RDD[tuple[str, int]]:
    """Return pairs of a text as key and a number below `count`."""
    return numbers(spark, count).map(lambda n: (f"key {n % keys}", n))


def _collected(rdd: RDD[Any]) -> Any:
    return sorted(rdd.collect(), key=repr)


@scenario(everyday=True)
def reduce_by_key(spark: SparkSession) -> Any:
    return _collected(pairs(spark).reduceByKey(operator.add))


@scenario()
def reduce_by_key_locally(spark: SparkSession) -> Any:
    return sorted(pairs(spark).reduceByKeyLocally(operator.add).items())


@scenario()
def group_by_key(spark: SparkSession) -> Any:
    return _collected(pairs(spark, 100).groupByKey().mapValues(list))


@scenario()
def group_many_values(spark: SparkSession) -> Any:
    grouped = pairs(spark, 100_000, 3).groupByKey(4)
    return _collected(grouped.mapValues(lambda values: (len(values), sum(values))))


@scenario()
def aggregate_by_key(spark: SparkSession) -> Any:
    return _collected(
        pairs(spark).aggregateByKey([], lambda found, n: [*found, n][-3:], operator.add).mapValues(sorted)
    )


@scenario()
def combine_by_key(spark: SparkSession) -> Any:
    return _collected(pairs(spark).combineByKey(lambda n: n, max, max))


@scenario()
def fold_by_key(spark: SparkSession) -> Any:
    return _collected(pairs(spark).foldByKey(1, lambda a, b: a * b % 10_007))


@scenario()
def sort_by_key(spark: SparkSession) -> Any:
    return pairs(spark, 300).sortByKey(False, 3, keyfunc=lambda key: key[::-1]).keys().collect()


@scenario()
def join(spark: SparkSession) -> Any:
    left, right = pairs(spark, 30), pairs(spark, 20, 13)
    return [
        _collected(left.join(right)),
        _collected(left.leftOuterJoin(right)),
        _collected(left.rightOuterJoin(right)),
        _collected(left.fullOuterJoin(right)),
    ]


@scenario()
def cogroup(spark: SparkSession) -> Any:
    grouped = pairs(spark, 30).cogroup(pairs(spark, 20, 13))
    return _collected(grouped.mapValues(lambda sides: [sorted(side) for side in sides]))


@scenario()
def group_with_two_others(spark: SparkSession) -> Any:
    grouped = pairs(spark, 30).groupWith(pairs(spark, 20, 13), pairs(spark, 10, 2))
    return _collected(grouped.mapValues(lambda sides: [sorted(side) for side in sides]))


@scenario()
def subtract_by_key(spark: SparkSession) -> Any:
    return _collected(pairs(spark, 30).subtractByKey(pairs(spark, 5)))


@scenario()
def count_by_key(spark: SparkSession) -> Any:
    return sorted(pairs(spark).countByKey().items())


@scenario()
def lookup(spark: SparkSession) -> Any:
    parted = pairs(spark, 100).partitionBy(4).cache()
    try:
        return sorted(parted.lookup("key 3")), pairs(spark, 100).lookup("no key")
    finally:
        parted.unpersist()


@scenario()
def collect_as_map(spark: SparkSession) -> Any:
    return sorted(pairs(spark, 11).collectAsMap().items())


@scenario()
def keys_and_values(spark: SparkSession) -> Any:
    rdd = pairs(spark, 20)
    return rdd.keys().collect(), rdd.values().collect(), rdd.flatMapValues(lambda n: range(n % 3)).collect()


@scenario(everyday=True)
def partition_by_hash(spark: SparkSession) -> Any:
    """Return the keys of each partition: workers hash texts with the session's PYTHONHASHSEED."""
    return pairs(spark, 100, 40).partitionBy(5).keys().glom().map(sorted).collect()


@scenario()
def partition_by_own_function(spark: SparkSession) -> Any:
    parted = pairs(spark, 60).partitionBy(3, lambda key: int(key.split()[1]) % 3)
    return parted.glom().map(sorted).collect()


@scenario()
def partition_by_tuples(spark: SparkSession) -> Any:
    parted = numbers(spark, 60).map(lambda n: ((n % 5, f"text {n % 7}", None), n)).partitionBy(4, portable_hash)
    return parted.values().glom().map(sorted).collect()


@scenario()
def repartition_and_sort_within_partitions(spark: SparkSession) -> Any:
    parted = pairs(spark, 200).repartitionAndSortWithinPartitions(3, lambda key: len(key), ascending=False)
    return parted.keys().glom().collect()


@scenario()
def several_shuffles_in_one_job(spark: SparkSession) -> Any:
    counts = pairs(spark).mapValues(lambda n: 1).reduceByKey(operator.add)
    sums = pairs(spark).reduceByKey(operator.add)
    return counts.join(sums).map(lambda row: (row[1][1] // row[1][0], row[0])).sortByKey().collect()


@scenario()
def shuffle_that_spills(spark: SparkSession) -> Any:
    """Sort more than PySpark's worker keeps in memory, so that it sorts in files."""
    context = spark.sparkContext
    conf = context._conf
    before = conf.get("spark.python.worker.memory", "512m")
    conf.set("spark.python.worker.memory", "1m")
    try:
        grouped = numbers(spark, 60_000, 2).map(lambda n: (n % 5000, "x" * 100)).groupByKey(2)
        return grouped.mapValues(lambda texts: sum(map(len, texts))).values().sum()
    finally:
        conf.set("spark.python.worker.memory", before)
