# SPDX-License-Identifier: Apache-2.0
"""Two pools in one session, such as with CPUs and with GPUs: a query runs on the pool that it was planned for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, runtime_confs

_ROWS = 20


@pytest.fixture
def pools(stock_only: bool) -> Iterator[tuple[LocalPool, LocalPool]]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with LocalPool(workers=2) as first, LocalPool(workers=2) as second:
        yield first, second


def _asking(spark: SparkSession) -> DataFrame:
    """Return a query whose function returns the process that forked its worker."""
    return spark.range(0, _ROWS, 1, 2).select(_forked_by("id").alias("zygote"))


def _forked_by(column: str) -> Column:
    return F.udf(lambda _: os.getppid(), "int")(column)


def _zygotes(frame: DataFrame) -> set[int]:
    return {row["zygote"] for row in frame.collect()}


def _of(pool: LocalPool) -> set[int]:
    zygote = pool.zygote()
    assert zygote is not None
    return {zygote.pid}


def test_queries_of_a_session_run_on_the_pool_that_the_setting_names(
    spark: SparkSession, pools: tuple[LocalPool, LocalPool]
) -> None:
    for pool in (*pools, *pools):
        with runtime_confs(spark, {ENDPOINT: pool.tcp_endpoint}):
            assert _zygotes(_asking(spark)) == _of(pool)


def test_the_setting_counts_when_a_query_is_planned(spark: SparkSession, pools: tuple[LocalPool, LocalPool]) -> None:
    first, second = pools
    frame = _asking(spark)
    with runtime_confs(spark, {ENDPOINT: first.tcp_endpoint}):
        assert _zygotes(frame) == _of(first)
    with runtime_confs(spark, {ENDPOINT: second.tcp_endpoint}):
        # A planned query keeps its pool; a query derived from it is planned anew.
        assert _zygotes(frame) == _of(first)
        assert _zygotes(frame.where("zygote > 0")) == _of(second)


def test_what_one_pool_has_computed_another_takes_in_the_next_query(
    spark: SparkSession, pools: tuple[LocalPool, LocalPool]
) -> None:
    first, second = pools
    with runtime_confs(spark, {ENDPOINT: first.tcp_endpoint}):
        cached = _asking(spark).cache()
        cached.count()
    try:
        with runtime_confs(spark, {ENDPOINT: second.tcp_endpoint}):
            rows = cached.select("zygote", _forked_by("zygote").alias("then")).distinct().collect()
        assert [({row["zygote"]}, {row["then"]}) for row in rows] == [(_of(first), _of(second))]
    finally:
        cached.unpersist()
