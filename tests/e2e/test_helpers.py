# SPDX-License-Identifier: Apache-2.0
"""Helpers: a task that waits for a slow function uses the pool's idle workers too, and gives the same answers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Sides
from tests.support.plan_metrics import metrics_of
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs

_ROWS = 4_000
# Small slices make many batches of few rows.
_CONFS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20", "spark.updraft.udf.batchBytes": "1k"}
_SECONDS_PER_ROW = 0.0001
_FIRST_BAD = 2_999


def _slow(x: pd.Series) -> pd.Series:
    # A function that waits leaves the cores to the other processes of the test.
    time.sleep(_SECONDS_PER_ROW * len(x))
    return x * 2


def _raising(x: pd.Series) -> pd.Series:
    if x.max() >= _FIRST_BAD:
        raise ValueError(f"the batch ends at {x.max()}")
    return _slow(x)


_KINDS: dict[str, Callable[[], Callable[[str], Column]]] = {
    "pandas": lambda: F.pandas_udf(_slow, "bigint"),
    "pickled": lambda: F.udf(lambda x: int(_slow(pd.Series([x]))[0]), "bigint"),
}


def _one_task(spark: SparkSession, function: Callable[[str], Column]) -> DataFrame:
    return spark.range(0, _ROWS, 1, 1).select("id", function("id").alias("y"))


def _metrics(spark: SparkSession, pool: LocalPool, query: Callable[[SparkSession], DataFrame]) -> dict[str, int]:
    """Run a query, and return the metrics of its operator."""
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: pool.tcp_endpoint, **_CONFS}):
        frame = query(spark)
        assert [row.y for row in frame.collect()] == [2 * number for number in range(_ROWS)]
        return metrics_of(frame, "Flight")


@pytest.mark.parametrize("kind", _KINDS)
def test_an_idle_worker_helps_a_slow_task(sides: Sides, pool: LocalPool, kind: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        return _one_task(spark, _KINDS[kind]())

    sides.assert_same(query, confs=_CONFS)
    metrics = _metrics(sides.spark, pool, query)
    assert metrics["updraftHelpers"] >= 1
    assert metrics["updraftExchanges"] == 1
    assert metrics["pythonNumRowsReceived"] == _ROWS


def test_the_setting_turns_helpers_off(sides: Sides, pool: LocalPool) -> None:
    with runtime_confs(sides.spark, {"spark.updraft.udf.maxHelpers": "0"}):
        metrics = _metrics(sides.spark, pool, lambda spark: _one_task(spark, _KINDS["pandas"]()))
    assert metrics["updraftHelpers"] == 0


def test_a_nondeterministic_function_has_one_worker(sides: Sides, pool: LocalPool) -> None:
    function = F.pandas_udf(_slow, "bigint").asNondeterministic()
    assert _metrics(sides.spark, pool, lambda spark: _one_task(spark, function))["updraftHelpers"] == 0


def test_accumulators_count_each_row_once(sides: Sides, pool: LocalPool) -> None:
    counted = sides.spark.sparkContext.accumulator(0)

    @F.pandas_udf("bigint")
    def counting(x: pd.Series) -> pd.Series:
        counted.add(len(x))
        return _slow(x)

    metrics = _metrics(sides.spark, pool, lambda spark: _one_task(spark, counting))
    assert metrics["updraftHelpers"] >= 1
    assert counted.value == _ROWS


def test_the_first_failing_batch_fails_the_task(sides: Sides) -> None:
    sides.assert_refused_alike(lambda spark: _one_task(spark, F.pandas_udf(_raising, "bigint")), confs=_CONFS)


def test_batches_of_a_helper_that_dies_move_to_another_worker(sides: Sides, pool: LocalPool, tmp_path: Path) -> None:
    first, died = (NOTES / f"{name}-{tmp_path.name}" for name in ("first", "died"))

    @F.pandas_udf("bigint")
    def dies_once_as_a_helper(x: pd.Series) -> pd.Series:
        if not first.exists():
            first.write_text(str(os.getpid()))
        if not died.exists() and first.read_text() != str(os.getpid()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return _slow(x)

    try:
        metrics = _metrics(sides.spark, pool, lambda spark: _one_task(spark, dies_once_as_a_helper))
        assert died.exists()
        assert metrics["updraftReplays"] == 1
    finally:
        first.unlink(missing_ok=True)
        died.unlink(missing_ok=True)
