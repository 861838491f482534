# SPDX-License-Identifier: Apache-2.0
"""Queries whose every exchange is on record: small, of one partition each, and the same each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query

RECORD = Path(__file__).with_name("0.1.jsonl")


def pickled_rows(spark: SparkSession) -> DataFrame:
    return _numbers(spark).select(F.udf(lambda x: x + 1, "bigint", useArrow=False)("id").alias("x"))


def batches_of_pandas(spark: SparkSession) -> DataFrame:
    @F.pandas_udf("string")
    def name(x: pd.Series) -> pd.Series:
        return "n" + x.astype(str)

    return _numbers(spark).select(name("id").alias("x"))


def streams_of_arrow(spark: SparkSession) -> DataFrame:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    return _numbers(spark).mapInArrow(doubled, "id bigint")


def groups(spark: SparkSession) -> DataFrame:
    def summed(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"id": [int(frame["id"].sum())]})

    grouped = _numbers(spark).coalesce(1).groupBy((F.col("id") % 3).alias("key"))
    return grouped.applyInPandas(summed, "id bigint").orderBy("id")


def broadcasts(spark: SparkSession) -> DataFrame:
    names = spark.sparkContext.broadcast({number: f"n{number}" for number in range(10)})
    return _numbers(spark).select(F.udf(lambda x: names.value[x], "string", useArrow=False)("id").alias("x"))


def errors(spark: SparkSession) -> DataFrame:
    return _numbers(spark).select(F.udf(lambda x: int("on purpose"), "bigint")("id").alias("x"))


QUERIES: Mapping[str, Query] = {
    query.__name__: query for query in (pickled_rows, batches_of_pandas, streams_of_arrow, groups, broadcasts)
}
BROADCASTS, ERRORS, REGISTERED = "broadcasts", "errors", "registered function"
RECORDED: Sequence[str] = (*QUERIES, ERRORS, REGISTERED)
"""In the order of the record."""
CONFS: Mapping[str, Any] = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1)
