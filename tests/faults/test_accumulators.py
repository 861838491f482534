# SPDX-License-Identifier: Apache-2.0
"""Accumulators of a function whose worker dies in the middle of a task: each row counts once, as on stock."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs

_ROWS = 1000
_BATCH_ROWS = 100


@pytest.mark.timeout(100)
@pytest.mark.parametrize("enabled", ["false", "true"], ids=["stock", "pool"])
def test_rows_count_once_although_their_worker_dies(
    spark: SparkSession, pool: LocalPool, tmp_path: Path, enabled: str
) -> None:
    counted = spark.sparkContext.accumulator(0)
    died = NOTES / f"died-{enabled}-{tmp_path.name}"

    @F.pandas_udf("bigint")
    def counting(values: pd.Series) -> pd.Series:
        if values[0] >= 5 * _BATCH_ROWS and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        counted.add(len(values))
        return values

    confs = {
        ENABLED: enabled,
        ENDPOINT: pool.unix_endpoint,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
    }
    with runtime_confs(spark, confs):
        rows = spark.range(0, _ROWS, 1, 1).select(counting("id")).collect()
    assert [row[0] for row in rows] == list(range(_ROWS))
    assert died.exists()
    assert counted.value == _ROWS
