# SPDX-License-Identifier: Apache-2.0
"""Barrier stages that the plan does not show: `.rdd.barrier()`, the way xgboost.spark and spark-rapids-ml train.

A query is planned on the pool; its tasks find out that they belong to a barrier stage, and use Spark's own workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.kinds import KINDS
from tests.e2e.kinds.kind import Kind
from tests.e2e.sides import Sides, canonical
from tests.e2e.types import TYPE_CASES
from tests.support.spark import ENABLED, ENDPOINT, flight_operators, runtime_confs

_SLOTS = 2
_UNSUPPORTED = "spark.updraft.udf.unsupported"
# One or two kinds for each operator of the connector.
_NAMES = {
    "udf_pickled",
    "pandas_udf_iterator",
    "map_in_arrow",
    "grouped_pandas",
    "cogroup_arrow",
    "aggregate_pandas",
    "window_pandas_bounded",
    "udtf_lateral",
    "udtf_arrow_table",
}
_KINDS = [kind for kind in KINDS if kind.name in _NAMES]


@pytest.fixture(autouse=True)
def on_the_pool(sides: Sides, stock_only: bool) -> Iterator[None]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with runtime_confs(sides.spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        yield


def _barrier(frame: DataFrame) -> list[str]:
    assert flight_operators(frame._jdf.queryExecution().toString())
    rows = frame.rdd.barrier().mapPartitions(lambda rows: rows).collect()
    return [canonical(tuple(row)) for row in rows]


def _tasks_of_the_stage(value: Any) -> Any:
    from pyspark import BarrierTaskContext

    return value + 100 * len(BarrierTaskContext.get().getTaskInfos())


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name)
def test_a_function_of_each_operator_has_its_barrier_context(spark: SparkSession, kind: Kind) -> None:
    numbers = spark.range(0, 8, 1, _SLOTS).select("id", (F.col("id") % 2).alias("k"))
    found = _barrier(kind.apply(numbers, kind.function(_tasks_of_the_stage)))
    tasks = {tasks for tasks in (1, _SLOTS) if sorted(found) == sorted(_expected(kind, numbers, tasks))}
    assert len(tasks) == 1, found


def _expected(kind: Kind, numbers: DataFrame, tasks: int) -> list[str]:
    rows = kind.apply(numbers, kind.function(lambda value: value + 100 * tasks)).collect()
    return [canonical(tuple(row)) for row in rows]


def test_tasks_meet_and_exchange_messages(spark: SparkSession) -> None:
    def meet(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        context.barrier()
        everybody = ",".join(context.allGather(str(context.partitionId())))
        for _ in frames:
            yield pd.DataFrame({"everybody": [everybody]})

    frame = spark.range(0, 8, 1, _SLOTS).mapInPandas(meet, "everybody string")
    assert _barrier(frame) == [canonical(("0,1",))] * _SLOTS


def test_values_of_every_type_pass_a_barrier(spark: SparkSession, table: Path) -> None:
    columns = [case.name for case in TYPE_CASES if case.expression is None]
    rows = spark.read.parquet(str(table)).select(*columns).repartition(_SLOTS)
    frame = rows.withColumn("next", F.udf(lambda value: value, "int", useArrow=False)("int"))
    assert sorted(_barrier(frame)) == sorted(canonical(tuple(row)) for row in frame.collect())


def test_rows_of_a_columnar_file_pass_a_barrier(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 20_000, 1, 1).selectExpr("id", "cast(id AS string) AS text").write.parquet(f"{tmp_path}/rows")
    rows = spark.read.parquet(f"{tmp_path}/rows")
    frame = rows.withColumn("next", F.udf(lambda value: value + 1, "long", useArrow=False)("id"))
    assert _barrier(frame) == [canonical((i, str(i), i + 1)) for i in range(20_000)]


def test_two_functions_in_a_row_share_the_barrier(spark: SparkSession) -> None:
    f = F.udf(_tasks_of_the_stage, "long", useArrow=False)
    frame = spark.range(0, 2, 1, _SLOTS).select(f(f("id")).alias("r")).mapInPandas(lambda frames: frames, "r long")
    assert _barrier(frame) == [canonical((400,)), canonical((401,))]


def test_an_error_inside_a_barrier_is_stocks(spark: SparkSession) -> None:
    f = F.udf(lambda value: 1 // value, "long", useArrow=False)
    with pytest.raises((PythonException, Py4JJavaError), match="ZeroDivisionError"):
        _barrier(spark.range(0, 2, 1, _SLOTS).select(f("id")))


def test_a_session_that_wants_nothing_on_the_executors_refuses_the_stage(spark: SparkSession) -> None:
    f = F.udf(lambda value: value, "long", useArrow=False)
    with runtime_confs(spark, {_UNSUPPORTED: "fail"}), pytest.raises(Py4JJavaError, match="a barrier stage needs"):
        _barrier(spark.range(0, 2, 1, _SLOTS).select(f("id")))
