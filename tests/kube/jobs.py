# SPDX-License-Identifier: Apache-2.0
"""Job of many short tasks whose answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS = 40_000
SUM = ROWS * (ROWS - 1) // 2 * 3
_PARTITIONS = 16


def tripled(spark: SparkSession, partitions: int = _PARTITIONS) -> DataFrame:
    """Return a frame with a few seconds of work for four tasks at once."""

    @F.pandas_udf("long")
    def tripled(values: pd.Series) -> pd.Series:
        time.sleep(0.6)
        return values * 3

    return spark.range(0, ROWS, 1, partitions).select("id", tripled("id").alias("tripled"))


def total(rows: DataFrame) -> int:
    """Return the job's sum, which is SUM if every row came exactly once."""
    ((total,),) = rows.agg(F.sum("tripled")).collect()
    return int(total)


def totals_while(spark: SparkSession, operation: Callable[[], object]) -> set[int]:
    """Run jobs one after the other until `operation` is done, and return their sums; a job is running throughout."""
    with ThreadPoolExecutor() as threads:
        operating = threads.submit(operation)
        totals = {total(tripled(spark))}
        while not operating.done():
            totals.add(total(tripled(spark)))
        operating.result()
    return totals
