# SPDX-License-Identifier: Apache-2.0
"""Streams: stateless operators run on the pool, stateful ones stay with Spark and say why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.e2e.sides import Sides
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import ENABLED, ENDPOINT, flight_operators, runtime_confs

_ROWS = 20
_SCHEMA = "id bigint, k bigint"


@pytest.fixture(autouse=True)
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    source = str(tmp_path / "source")
    spark.range(_ROWS).select("id", (F.col("id") % 2).alias("k")).write.parquet(source)
    return spark.readStream.schema(_SCHEMA).parquet(source)


def _finished(frame: DataFrame, directory: Path, mode: str = "append") -> StreamingQuery:
    writer = frame.writeStream.format("memory").queryName("answer").outputMode(mode)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(250), "the stream does not end"
    return query


def _plan(query: StreamingQuery) -> str:
    return str(query._jsq.explainInternal(False))


def _counted(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    state.update((sum(len(frame) for frame in frames),))
    yield pd.DataFrame({"k": [key[0]], "rows": [state.get[0]]})


def _with_state(stream: DataFrame) -> DataFrame:
    return stream.groupBy("k").applyInPandasWithState(
        _counted, "k bigint, rows bigint", "rows bigint", "append", GroupStateTimeout.NoTimeout
    )


def test_a_function_without_state_runs_on_the_pool(
    sides: Sides, spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        query = _finished(stream.select(F.udf(lambda x: x + 1, "bigint")("id").alias("x")), tmp_path)
    assert flight_operators(_plan(query))
    assert sorted(row.x for row in spark.table("answer").collect()) == list(range(1, _ROWS + 1))


def test_a_function_with_state_stays_with_spark_and_says_why(
    sides: Sides, spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    needs_spark((4, 0), "functions with state that run with pyarrow 26")
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        query = _finished(_with_state(stream), tmp_path)
    assert "StockPython not on the pool" in _plan(query)
    assert "(state)" in _plan(query)
    assert sorted(tuple(row) for row in spark.table("answer").collect()) == [(0, _ROWS // 2), (1, _ROWS // 2)]


def test_a_function_with_state_can_mean_an_error(
    sides: Sides, spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    confs = {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"], "spark.updraft.udf.fallback": "fail"}
    with runtime_confs(spark, confs), pytest.raises(Exception, match=r"cannot run on the pool.*\(state\)"):
        _finished(_with_state(stream), tmp_path)
