# SPDX-License-Identifier: Apache-2.0
"""Queries with each kind of Python function between operators that the RAPIDS Accelerator runs on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

Query = Callable[[SparkSession, str], DataFrame]

# Scanned, filtered, joined and aggregated around the functions; made by `write_rows`.
_STORES = 50


def write_rows(spark: SparkSession, path: str, rows: int) -> None:
    """Write the table that the queries read: numbers, doubles, texts, and lists with nulls."""
    number = F.col("id")
    spark.range(0, rows, 1, 8).select(
        "id",
        (number * 0.5).alias("d"),
        F.concat(F.lit("user-"), (number % 1000).cast("string"), F.lit(" and some text")).alias("s"),
        F.when(number % 3 == 0, None).otherwise(number).alias("n"),
        F.array("id", (-number)).alias("a"),
    ).write.mode("overwrite").parquet(path)


def _totals(frame: DataFrame) -> DataFrame:
    return frame.groupBy((F.col("y") % 10).alias("k")).agg(F.sum("y").alias("total"))


def _scalar(make: Callable[[], Any]) -> Query:
    def query(spark: SparkSession, path: str) -> DataFrame:
        rows = spark.read.parquet(path).filter("id % 7 != 0")
        return _totals(rows.select("id", make()("id").alias("y")).filter("y % 11 != 0"))

    return query


def _upper_case(spark: SparkSession, path: str) -> DataFrame:
    upper = F.pandas_udf(lambda texts: texts.str.upper(), "string", _SCALAR)
    rows = spark.read.parquet(path).select(upper("s").alias("u"), "id")
    return rows.groupBy(F.substring("u", 1, 6).alias("k")).agg(F.count("*").alias("n"))


def _map_in_arrow(spark: SparkSession, path: str) -> DataFrame:
    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    rows = spark.read.parquet(path).select("id").mapInArrow(twice, "id bigint")
    return rows.filter("id > 3").agg(F.count("*").alias("n"), F.sum("id").alias("total"))


def _grouped(spark: SparkSession, path: str) -> DataFrame:
    def counted(key: tuple[Any, ...], group: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"k": [key[0]], "n": [len(group)], "d": [group["d"].sum()]})

    rows = spark.read.parquet(path).select((F.col("id") % 20).alias("k"), "d")
    return rows.groupBy("k").applyInPandas(counted, "k bigint, n bigint, d double")


def _joined(spark: SparkSession, path: str) -> DataFrame:
    store = F.pandas_udf(lambda numbers: numbers % _STORES, "bigint", _SCALAR)
    name = F.udf(lambda number: f"<{number}>", useArrow=True)
    left = spark.read.parquet(path).select(store("id").alias("k"), "d")
    right = spark.range(_STORES).select(F.col("id").alias("k"), name("id").alias("name"))
    return left.join(right, "k").groupBy("name").agg(F.sum("d").alias("total"))


def _nulls_and_lists(spark: SparkSession, path: str) -> DataFrame:
    same = F.pandas_udf(lambda numbers: numbers, "double", _SCALAR)
    rows = spark.read.parquet(path).select(same("n").alias("y"), "a")
    return rows.agg(F.sum("y").alias("y"), F.count("y").alias("n"), F.sum(F.element_at("a", 2)).alias("a"))


_SCALAR = F.PandasUDFType.SCALAR
QUERIES: dict[str, Query] = {
    "pickled": _scalar(lambda: F.udf(lambda number: number * 3, "bigint", useArrow=False)),
    "arrow_optimised": _scalar(lambda: F.udf(lambda number: number * 3, "bigint", useArrow=True)),
    "pandas": _scalar(lambda: F.pandas_udf(lambda numbers: numbers * 3, "bigint", _SCALAR)),
    "arrow": _scalar(lambda: F.arrow_udf(lambda numbers: pc.multiply(numbers, 3), "bigint", F.ArrowUDFType.SCALAR)),
    "texts": _upper_case,
    "map_in_arrow": _map_in_arrow,
    "grouped": _grouped,
    "joined": _joined,
    "nulls_and_lists": _nulls_and_lists,
}
