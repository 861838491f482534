# SPDX-License-Identifier: Apache-2.0
"""Batches through shared memory give the same answers as through the socket and on stock, even if the worker dies."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Sides
from tests.support.plan_metrics import metrics_of
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs

_ROWS = 1_500_000


@pytest.fixture(scope="module")
def near_pool(stock_only: bool) -> Iterator[LocalPool]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with LocalPool(workers=2, notes=NOTES) as pool:
        yield pool


@pytest.fixture
def near(spark: SparkSession, near_pool: LocalPool) -> Iterator[Sides]:
    # With the default window, all batches could be on their way before the pool's first reply offers a segment. If a
    # helper took a share of the batches, neither exchange might pass enough data for a segment.
    with runtime_confs(spark, {"spark.updraft.udf.windowBytes": "2m", "spark.updraft.udf.maxHelpers": "0"}):
        yield Sides(spark, {"unix": near_pool.unix_endpoint, "loopback": near_pool.loopback_endpoint}, False)


def _shared_bytes(pool: LocalPool) -> dict[str, float]:
    """Return the bytes that have passed through segments, by direction."""
    page, _ = pool.page("/metrics")
    found = re.findall(r'^updraft_segment_bytes_total\{direction="(\w+)"\} (\S+)$', page, re.MULTILINE)
    return {direction: float(count) for direction, count in found}


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, 1).selectExpr("id", "IF(id % 7 = 0, NULL, id * 0.5D) AS x")


def _texts(spark: SparkSession) -> DataFrame:
    return spark.range(0, 120_000, 1, 1).selectExpr("concat(repeat('text ', 16 + id % 9), id) AS t")


def _scalar(spark: SparkSession) -> DataFrame:
    add = F.pandas_udf(lambda x: x + 1, "double")
    return _numbers(spark).select(add("x").alias("y")).selectExpr("sum(y) AS s", "count(y) AS n", "max(y) AS m")


def _strings(spark: SparkSession) -> DataFrame:
    upper = F.pandas_udf(lambda t: t.str.upper(), "string")
    return _texts(spark).select(upper("t").alias("u")).selectExpr("sum(crc32(u)) AS s", "count(u) AS n")


def _longer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def _map(spark: SparkSession) -> DataFrame:
    found = _numbers(spark).mapInArrow(_longer, "id bigint, x double")
    return found.selectExpr("sum(id) AS s", "count(x) AS n", "count(*) AS rows")


def _center(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(x=rows.x - rows.x.mean())


def _grouped(spark: SparkSession) -> DataFrame:
    groups = _numbers(spark).withColumn("k", F.col("id") % 20).groupBy("k")
    return groups.applyInPandas(_center, "id bigint, x double, k bigint").selectExpr("count(x) AS n", "sum(id) AS s")


@pytest.mark.parametrize(
    ("query", "transport"),
    [(_scalar, "unix"), (_strings, "unix"), (_map, "unix"), (_grouped, "unix"), (_strings, "loopback")],
)
def test_large_batches_pass_through_shared_memory(
    near: Sides, near_pool: LocalPool, query: Callable[[SparkSession], DataFrame], transport: str
) -> None:
    before = _shared_bytes(near_pool)
    near.assert_same(query, transport)
    for direction, count in _shared_bytes(near_pool).items():
        assert count - before[direction] > 1 << 20, direction


def test_the_operator_shows_how_much_data_passed_through_shared_memory(near: Sides, near_pool: LocalPool) -> None:
    for endpoint, shares in ((near_pool.loopback_endpoint, True), (near_pool.tcp_endpoint, False)):
        before = sum(_shared_bytes(near_pool).values())
        with runtime_confs(near.spark, {ENABLED: "true", ENDPOINT: endpoint}):
            frame = _strings(near.spark)
            frame.collect()
            metrics = metrics_of(frame, "Flight")
        assert metrics["updraftSharedData"] == sum(_shared_bytes(near_pool).values()) - before
        data = metrics["pythonDataSent"] + metrics["pythonDataReceived"]
        # How many batches pass before the first reply offers a segment depends on the load of the machine.
        assert (1 << 20 < metrics["updraftSharedData"] <= data) if shares else metrics["updraftSharedData"] == 0


def test_a_worker_that_dies_is_replaced_and_the_batches_are_sent_again(near: Sides, tmp_path: Path) -> None:
    mark = NOTES / f"died-{tmp_path.name}"

    @F.pandas_udf("double")
    def dies_once(x: pd.Series) -> pd.Series:
        if x.max() > 600_000 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x + 1

    def query(spark: SparkSession) -> DataFrame:
        return _numbers(spark).select(dies_once("x").alias("y")).selectExpr("sum(y) AS s", "count(y) AS n")

    expected = near.updraft(_scalar, "unix").rows[0][:2]
    assert near.updraft(query, "unix").rows == [expected]
    assert mark.exists()
    mark.unlink()


def test_small_exchanges_and_other_transports_have_no_segment(near: Sides, near_pool: LocalPool) -> None:
    before = _shared_bytes(near_pool)
    add = F.pandas_udf(lambda x: x + 1, "bigint")
    near.assert_same(lambda spark: spark.range(0, 1000, 1, 1).select(add("id").alias("y")), "unix")
    Sides(near.spark, {"tcp": near_pool.tcp_endpoint}, False).assert_same(_scalar)
    assert _shared_bytes(near_pool) == before
