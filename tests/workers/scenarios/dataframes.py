# SPDX-License-Identifier: Apache-2.0
"""Conversions between data frames and RDDs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


def _frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 3).selectExpr(
        "id", "concat('text ', id) AS text", "named_struct('n', id, 'list', array(id, NULL)) AS inner"
    )


@scenario(everyday=True)
def rows_to_rdd(spark: SparkSession) -> Any:
    return _frame(spark).rdd.map(lambda row: (row.id * 2, row.text, row.inner.list)).collect()


@scenario()
def rows_of_many_types(spark: SparkSession) -> Any:
    frame = spark.sql(
        "SELECT DATE'2026-01-02' AS d, TIMESTAMP'2026-01-02 03:04:05.6' AS t, 1.10BD AS n, X'00FF' AS b,"
        " map('a', 1) AS m, INTERVAL '1' DAY AS i, CAST(NULL AS INT) AS nothing,"
        " CAST('NaN' AS DOUBLE) AS nan, true AS flag"
    )
    return frame.rdd.map(lambda row: [repr(value) for value in row]).collect()


@scenario()
def rdd_to_frame(spark: SparkSession) -> Any:
    frame = numbers(spark, 50).map(lambda n: Row(n=n, text=f"text {n}", maybe=None if n % 2 else n / 4)).toDF()
    return frame.schema.simpleString(), [list(row) for row in frame.orderBy("n").collect()]


@scenario()
def rdd_to_frame_with_a_schema(spark: SparkSession) -> Any:
    frame = spark.createDataFrame(numbers(spark, 50).map(lambda n: (n, [str(n)])), "n int, texts array<string>")
    return [list(row) for row in frame.where("n % 5 = 0").collect()]


@scenario()
def rdd_to_frame_by_samples(spark: SparkSession) -> Any:
    frame = spark.createDataFrame(numbers(spark, 50).map(lambda n: (n, float(n))), samplingRatio=0.9)
    return frame.schema.simpleString(), frame.count()


@scenario()
def rows_that_do_not_fit_the_schema(spark: SparkSession) -> Any:
    frame = spark.createDataFrame(numbers(spark, 5, 1).map(lambda n: (str(n),)), "n int")
    found = failure(frame.collect)
    return found["class"], found["cause"]


@scenario()
def read_json_of_an_rdd(spark: SparkSession) -> Any:
    frame = spark.read.json(numbers(spark, 20).map(lambda n: f'{{"n": {n}}}'))
    return frame.schema.simpleString(), sorted(row.n for row in frame.collect())


@scenario()
def read_csv_of_an_rdd(spark: SparkSession) -> Any:
    frame = spark.read.csv(numbers(spark, 20).map(lambda n: f"{n},text {n}"), schema="n int, text string")
    return sorted(list(row) for row in frame.collect())


@scenario()
def map_partitions_with_pandas(spark: SparkSession) -> Any:
    def summed(rows: Iterator[Row]) -> Iterator[Any]:
        import pandas as pd

        frame = pd.DataFrame([row.asDict() for row in rows])
        yield int(frame["id"].sum()), sorted(frame["text"])[-1]

    return _frame(spark).rdd.mapPartitions(summed).collect()


@scenario()
def foreach_row(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)
    _frame(spark).foreach(lambda row: total.add(row.id))
    return total.value


@scenario()
def foreach_partition_of_rows(spark: SparkSession) -> Any:
    total = spark.sparkContext.accumulator(0)
    _frame(spark).foreachPartition(lambda rows: total.add(sum(row.id for row in rows)))
    return total.value


@scenario()
def query_after_an_rdd(spark: SparkSession) -> Any:
    frame = _frame(spark).rdd.map(lambda row: (row.id % 4, row.id)).toDF(["k", "n"])
    return sorted(list(row) for row in frame.groupBy("k").sum("n").collect())


@scenario()
def cached_frame_to_rdd(spark: SparkSession) -> Any:
    frame = _frame(spark).cache()
    try:
        return frame.count(), frame.rdd.map(lambda row: row.id).sum()
    finally:
        frame.unpersist(blocking=True)
