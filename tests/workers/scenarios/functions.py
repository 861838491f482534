# SPDX-License-Identifier: Apache-2.0
"""Functions in queries that a setting leaves to Spark's own operators, and therefore to Spark's own workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.support.spark import ENABLED, runtime_confs, stock_confs
from tests.workers.failures import failure
from tests.workers.scenario import scenario


def _table(spark: SparkSession) -> DataFrame:
    return spark.range(0, 200, 1, 2).selectExpr("id", "id % 5 AS k", "concat('text ', id) AS text")


def _on_stock(spark: SparkSession, query: Callable[[DataFrame], DataFrame]) -> Any:
    """Return the rows of a query that runs without Updraft's operators."""
    with runtime_confs(spark, {ENABLED: "false", **stock_confs()}):
        return sorted((list(row) for row in query(_table(spark)).collect()), key=repr)


@scenario(everyday=True)
def pickled_function(spark: SparkSession) -> Any:
    shout = F.udf(lambda text, number: f"{text.upper()} {number + 1}", "string")
    return _on_stock(spark, lambda table: table.select(shout("text", "id")))


@scenario()
def pickled_functions_in_a_chain(spark: SparkSession) -> Any:
    once = F.udf(lambda number: number + 1, "long")
    return _on_stock(spark, lambda table: table.select(once(once("id")), once("k")).where(once(F.col("id")) > 100))


@scenario()
def arrow_optimised_function(spark: SparkSession) -> Any:
    shout = F.udf(lambda text: text.upper(), "string", useArrow=True)
    return _on_stock(spark, lambda table: table.select(shout("text")))


@scenario()
def pandas_function(spark: SparkSession) -> Any:
    @F.pandas_udf("long")
    def doubled(numbers: pd.Series) -> pd.Series:
        return numbers * 2

    return _on_stock(spark, lambda table: table.select(doubled("id")))


@scenario()
def pandas_function_of_batches(spark: SparkSession) -> Any:
    @F.pandas_udf("long")
    def doubled(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for numbers in batches:
            yield numbers * 2

    return _on_stock(spark, lambda table: table.select(doubled("id")))


@scenario()
def pandas_aggregate(spark: SparkSession) -> Any:
    @F.pandas_udf("double")
    def middle(numbers: pd.Series) -> float:
        return float(numbers.median())

    return _on_stock(spark, lambda table: table.groupBy("k").agg(middle("id")))


@scenario()
def pandas_window(spark: SparkSession) -> Any:
    @F.pandas_udf("double")
    def middle(numbers: pd.Series) -> float:
        return float(numbers.median())

    window = Window.partitionBy("k").orderBy("id").rowsBetween(-2, 0)
    return _on_stock(spark, lambda table: table.select("id", middle("id").over(window)))


def _upper(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        yield batch.assign(text=batch["text"].str.upper())[["id", "text"]]


@scenario()
def map_in_pandas(spark: SparkSession) -> Any:
    return _on_stock(spark, lambda table: table.mapInPandas(_upper, "id long, text string"))


@scenario()
def map_in_arrow(spark: SparkSession) -> Any:
    def first_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(["id", "k"])

    return _on_stock(spark, lambda table: table.mapInArrow(first_columns, "id long, k long"))


@scenario()
def apply_in_pandas(spark: SparkSession) -> Any:
    def largest(group: pd.DataFrame) -> pd.DataFrame:
        return group.nlargest(2, "id")[["id", "k"]]

    return _on_stock(spark, lambda table: table.groupBy("k").applyInPandas(largest, "id long, k long"))


@scenario()
def apply_in_arrow(spark: SparkSession) -> Any:
    def counted(group: pa.Table) -> pa.Table:
        return pa.table({"k": group["k"][:1], "rows": [group.num_rows]})

    return _on_stock(spark, lambda table: table.groupBy("k").applyInArrow(counted, "k long, rows long"))


@scenario()
def cogrouped_apply_in_pandas(spark: SparkSession) -> Any:
    def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"left": [len(left)], "right": [len(right)]})

    def query(table: DataFrame) -> DataFrame:
        right = table.where("id < 50 AND k > 1").groupBy("k")
        return table.groupBy("k").cogroup(right).applyInPandas(both, "left long, right long")

    return _on_stock(spark, query)


@scenario()
def table_function(spark: SparkSession) -> Any:
    class Squares:
        def eval(self, count: int) -> Iterator[tuple[int, int]]:
            for number in range(count):
                yield number, number * number

    with runtime_confs(spark, {ENABLED: "false"}):
        return [list(row) for row in F.udtf(Squares, returnType="n long, square long")(F.lit(6)).collect()]


@scenario()
def exception_in_a_function(spark: SparkSession) -> Any:
    refuse = F.udf(lambda number: 1 // (number - 3), "long")
    with runtime_confs(spark, {ENABLED: "false"}):
        found = failure(lambda: spark.range(0, 5, 1, 1).select(refuse("id")).collect())
    return found["class"], found.get("cause")


@scenario()
def function_with_a_broadcast(spark: SparkSession) -> Any:
    names = spark.sparkContext.broadcast({number: f"name {number}" for number in range(5)})
    named = F.udf(lambda number: names.value[number], "string")
    return _on_stock(spark, lambda table: table.select(named("k")))
