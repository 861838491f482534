# SPDX-License-Identifier: Apache-2.0
"""A job of many short tasks whose answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS = 40_000
SUM = ROWS * (ROWS - 1) // 2 * 3
_PARTITIONS = 40
_WITHIN_SECONDS = 300


def tripled(spark: SparkSession, partitions: int = _PARTITIONS) -> DataFrame:
    """With 40 partitions a quarter of a minute's work for four tasks at once."""

    @F.pandas_udf("long")
    def tripled(values: pd.Series) -> pd.Series:
        time.sleep(0.6)
        return values * 3

    return spark.range(0, ROWS, 1, partitions).select("id", tripled("id").alias("tripled"))


def total(rows: DataFrame) -> int:
    """The sum that is SUM when every row came once."""
    ((total,),) = rows.agg(F.sum("tripled")).collect()
    return int(total)


def total_while(spark: SparkSession, operation: Callable[[], object]) -> int:
    """The sum of a job in whose course `operation` is done."""
    with ThreadPoolExecutor() as threads:
        job = threads.submit(lambda: total(tripled(spark)))
        operation()
        return job.result(timeout=_WITHIN_SECONDS)
