# SPDX-License-Identifier: Apache-2.0
"""An installation with defaults runs a Spark job, and nothing that operators do to it fails a task."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.kube.cluster import Release
from tests.support.spark import executed_plan, flight_operators, runtime_confs

_POOL = "pool-default"
_ROWS, _PARTITIONS = 40_000, 40
_SUM = _ROWS * (_ROWS - 1) // 2 * 3


def _query(spark: SparkSession) -> DataFrame:
    """A quarter of a minute of short tasks on two workers."""

    @F.pandas_udf("long")
    def tripled(values: pd.Series) -> pd.Series:
        time.sleep(0.6)
        return values * 3

    return spark.range(0, _ROWS, 1, _PARTITIONS).select("id", tripled("id").alias("tripled"))


def _total(spark: SparkSession) -> int:
    ((total,),) = _query(spark).agg(F.sum("tripled")).collect()
    return int(total)


def test_a_job_runs_on_the_pool_and_its_files_come_back(spark: SparkSession, tmp_path: Path) -> None:
    rows = _query(spark)
    assert flight_operators(executed_plan(rows))
    parts = rows.withColumn("part", F.col("id") % 3).write.partitionBy("part")
    parts.format("updraft-parquet").save(str(tmp_path / "files"))
    ((total, count),) = spark.read.parquet(str(tmp_path / "files")).agg(F.sum("tripled"), F.count("*")).collect()
    assert (total, count) == (_SUM, _ROWS)


@pytest.mark.parametrize(
    "operation",
    [
        lambda release: (release.scale(_POOL, 3), release.scale(_POOL, 1)),
        lambda release: release.upgrade(**{"common.podAnnotations.round": "two"}),
        lambda release: release.rollback(),
    ],
    ids=["scaled up and down", "upgraded", "rolled back"],
)
def test_no_task_fails_while_the_release_is(
    spark: SparkSession, release: Release, operation: Callable[[Release], object]
) -> None:
    with ThreadPoolExecutor() as threads:
        job = threads.submit(_total, spark)
        operation(release)
        assert job.result(timeout=300) == _SUM


def test_a_pod_that_is_killed_changes_no_row(spark: SparkSession, release: Release) -> None:
    release.scale(_POOL, 2)
    with ThreadPoolExecutor() as threads:
        job = threads.submit(_total, spark)
        killed = release.kill_a_pod(_POOL)
        assert job.result(timeout=300) == _SUM
    assert killed not in [pod.metadata.name for pod in release.pods(_POOL)]


def test_the_token_is_kept_when_the_release_is_upgraded(release: Release, token_file: Path) -> None:
    release.upgrade(**{"pools.default.settings.queueLimit": "300"})
    assert release.token() == token_file.read_text()


def test_a_wrong_token_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("guessed")
    guessed = {"spark.updraft.udf.tokenFile": str(tmp_path / "token")}
    with runtime_confs(spark, guessed), pytest.raises(Exception, match="token"):
        _total(spark)


def test_uninstalling_leaves_nothing(spark: SparkSession, release: Release) -> None:
    assert release.uninstall() == []
