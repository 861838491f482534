# SPDX-License-Identifier: Apache-2.0
"""Updraft plans the UDFs, the RAPIDS Accelerator the rest, and neither changes the other's results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.spark import ENABLED, executed_plan, flight_operators, runtime_confs, stock_operators

Query = Callable[[SparkSession], DataFrame]

# The plug-in unpacks and loads a gigabyte of libraries, even if it only explains.
pytestmark = pytest.mark.timeout(600)


def _over_ids(make: Callable[..., Any], *arguments: Any, **options: Any) -> Query:
    """Return a query with a UDF, which is made once a session can parse its type."""

    def query(spark: SparkSession) -> DataFrame:
        udf = make(*arguments, **options)
        return spark.range(0, 1000, 1, 2).select("id", udf("id").alias("y")).filter("y % 7 != 0")

    return query


def _twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def _joined_and_aggregated(spark: SparkSession) -> DataFrame:
    last_digit = F.pandas_udf(lambda s: s % 10, "bigint", _SCALAR)
    in_brackets = F.udf(lambda i: f"<{i}>", useArrow=True)
    left = spark.range(0, 1000, 1, 2).select("id", last_digit("id").alias("key"))
    right = spark.range(10).select(F.col("id").alias("key"), in_brackets("id").alias("name"))
    return left.join(right, "key").groupBy("name").agg(F.sum("id").alias("total")).orderBy("name")


_SCALAR = F.PandasUDFType.SCALAR
QUERIES: dict[str, Query] = {
    "pickled": _over_ids(F.udf, lambda i: i * 3, "bigint", useArrow=False),
    "arrow_optimised": _over_ids(F.udf, lambda i: i * 3, "bigint", useArrow=True),
    "pandas": _over_ids(F.pandas_udf, lambda s: s * 3, "bigint", _SCALAR),
    "arrow": _over_ids(F.arrow_udf, lambda a: pc.multiply(a, 3), "bigint", F.ArrowUDFType.SCALAR),
    "map_in_arrow": lambda spark: spark.range(0, 100, 1, 2).mapInArrow(_twice, "id bigint").filter("id > 3"),
    "join_and_aggregate": _joined_and_aggregated,
}


def _answer(frame: DataFrame) -> tuple[list[tuple[object, ...]], str]:
    rows = sorted(tuple(row) for row in frame.collect())
    return rows, executed_plan(frame)


def _gpu_plan(frame: DataFrame) -> str:
    """Return the RAPIDS Accelerator's explanation of each operator of a plan."""
    explain = frame.sparkSession._jvm.com.nvidia.spark.rapids.ExplainPlan
    return str(explain.explainPotentialGpuPlan(frame._jdf, "ALL"))


@pytest.mark.parametrize("name", QUERIES)
def test_udfs_run_on_the_pool_with_stocks_answers(spark: SparkSession, name: str) -> None:
    rows, plan = _answer(QUERIES[name](spark))
    with runtime_confs(spark, {ENABLED: "false"}):
        stock, stock_plan = _answer(QUERIES[name](spark))
    assert rows == stock
    assert flight_operators(plan)
    assert not stock_operators(plan)
    assert not flight_operators(stock_plan)


def test_rapids_would_take_what_is_around_a_udf_and_leaves_the_udf_alone(spark: SparkSession) -> None:
    explained = _gpu_plan(_joined_and_aggregated(spark))
    assert "*Exec <HashAggregateExec> will run on GPU" in explained
    udfs = [line for line in explained.splitlines() if "<FlightEvalPythonExec>" in line]
    assert udfs
    assert all("cannot run on GPU" in line for line in udfs)


def test_a_query_without_udfs_is_planned_as_without_updraft(spark: SparkSession) -> None:
    def query() -> DataFrame:
        return spark.range(100).groupBy((F.col("id") % 3).alias("k")).count().orderBy("k")

    rows, _ = _answer(query())
    explained = _gpu_plan(query())
    with runtime_confs(spark, {ENABLED: "false"}):
        assert _answer(query())[0] == rows
        without = _gpu_plan(query())
    assert _without_ids(explained) == _without_ids(without)


def test_results_of_udfs_are_written_and_read_as_parquet(spark: SparkSession, tmp_path: Path) -> None:
    frame = QUERIES["pandas"](spark)
    frame.write.parquet(str(tmp_path / "out"))
    written = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert written == [(i, i * 3) for i in range(1000) if i * 3 % 7]


def test_an_error_of_a_udf_reads_as_ever(spark: SparkSession) -> None:
    def fail(values: pd.Series) -> pd.Series:
        raise ValueError(f"no such value among {len(values)}")

    with pytest.raises(Exception, match="no such value among"):
        spark.range(3).select(F.pandas_udf(fail, "bigint", _SCALAR)("id")).collect()


def _without_ids(text: str) -> str:
    return re.sub(r"#\d+L?", "", text)
