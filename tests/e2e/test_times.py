# SPDX-License-Identifier: Apache-2.0
"""Times that Spark shows for its Python workers are also shown for a pool's, as the worker measured them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.e2e.sides import Sides
from tests.support.plan_metrics import metrics_of
from tests.support.spark import ENABLED, ENDPOINT, SPARK_VERSION, runtime_confs, stock_confs, wait_for_listeners
from tests.support.waiting import until

_UNPICKLING_SECONDS, _WORKING_SECONDS = 0.3, 0.2
# Spark 4.1 renamed both operators.
_FOLDS = (
    ("ArrowAggregatePython", "ArrowWindowPython")
    if SPARK_VERSION >= (4, 1)
    else ("AggregateInPandas", "WindowInPandas")
)
_TIMES = ("pythonInitTime", "pythonTotalTime", *(["pythonProcessingTime"] if SPARK_VERSION >= (4, 2) else []))


class _SlowToUnpickle:
    """Function that takes time when stock's worker counts it as initialization, and when it works."""

    def __setstate__(self, state: object) -> None:
        time.sleep(_UNPICKLING_SECONDS)

    def __getstate__(self) -> bool:
        return True

    def value(self, x: int) -> int:
        time.sleep(_WORKING_SECONDS)
        return x

    def column(self, values: Any) -> Any:
        time.sleep(_WORKING_SECONDS)
        return values

    def batches(self, batches: Any) -> Any:
        for batch in batches:
            time.sleep(_WORKING_SECONDS)
            yield batch

    def group(self, rows: Any) -> Any:
        time.sleep(_WORKING_SECONDS)
        return rows

    def last(self, values: Any) -> Any:
        time.sleep(_WORKING_SECONDS)
        return values.iloc[-1]


Kind = Callable[[DataFrame, _SlowToUnpickle], DataFrame]
"""Query that returns the rows with the function's results."""


def _times(spark: SparkSession, kind: Kind, operator: str) -> list[int]:
    frame = kind(spark.range(0, 1, 1, 1), _SlowToUnpickle())
    frame.collect()
    metrics = metrics_of(frame, operator)
    return [metrics[name] for name in _TIMES]


def _in_arrow(rows: DataFrame, function: _SlowToUnpickle) -> DataFrame:
    return rows.select(F.arrow_udf(function.column, "bigint", F.ArrowUDFType.SCALAR)("id"))


def _cogrouped(rows: DataFrame, function: _SlowToUnpickle) -> DataFrame:
    both = rows.groupBy("id").cogroup(rows.groupBy("id"))
    return both.applyInPandas(lambda left, _: function.group(left), "id bigint")


def _last(function: _SlowToUnpickle) -> Any:
    return F.pandas_udf(function.last, "bigint", F.PandasUDFType.GROUPED_AGG)


def _tabled(function: _SlowToUnpickle, use_arrow: bool) -> Any:
    class Table:
        def eval(self, x: int) -> Any:
            yield (function.value(x),)

    return F.udtf(Table, returnType="x bigint", useArrow=use_arrow)


def _over_a_table(rows: DataFrame, table: Any) -> DataFrame:
    return rows.lateralJoin(table(F.col("id").outer()))


@pytest.fixture(autouse=True)
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft beside stock")


@pytest.mark.parametrize(
    ("kind", "stock_operator"),
    [
        (lambda rows, f: rows.select(F.udf(f.value, "bigint", useArrow=False)("id")), "BatchEvalPython"),
        (lambda rows, f: rows.select(F.udf(f.value, "bigint", useArrow=True)("id")), "ArrowEvalPython"),
        (_in_arrow, "ArrowEvalPython"),
        (lambda rows, f: rows.mapInArrow(f.batches, "id bigint"), "MapInArrow"),
        (
            lambda rows, f: rows.groupBy("id").applyInPandas(lambda group: f.group(group), "id bigint"),
            "FlatMapGroupsInPandas",
        ),
        (_cogrouped, "FlatMapCoGroupsInPandas"),
        (lambda rows, f: rows.groupBy("id").agg(_last(f)("id")), _FOLDS[0]),
        (lambda rows, f: rows.select(_last(f)("id").over(Window.partitionBy("id"))), _FOLDS[1]),
        (lambda rows, f: _over_a_table(rows, _tabled(f, use_arrow=False)), "BatchEvalPythonUDTF"),
        (lambda rows, f: _over_a_table(rows, _tabled(f, use_arrow=True)), "ArrowEvalPythonUDTF"),
    ],
    ids=[
        "pickled",
        "arrow-optimised",
        "arrow",
        "map",
        "grouped",
        "cogrouped",
        "aggregate",
        "window",
        "table function, pickled",
        "table function, in Arrow",
    ],
)
def test_the_times_of_python_are_those_of_the_worker_as_on_stock(
    sides: Sides, spark: SparkSession, kind: Kind, stock_operator: str
) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        measured = [_times(spark, kind, "Flight")]
    # Before 4.0, Spark's own workers do not measure their time.
    if SPARK_VERSION >= (4, 0):
        with runtime_confs(spark, {ENABLED: "false", **stock_confs()}):
            measured.append(_times(spark, kind, stock_operator))
    for initializing, *working in measured:
        assert initializing >= _UNPICKLING_SECONDS * 1000
        assert min(working) >= _WORKING_SECONDS * 1000


def test_the_times_of_python_are_shown_in_the_sql_tab(sides: Sides, spark: SparkSession) -> None:
    store = spark._jsparkSession.sharedState().statusStore()
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        _in_arrow(spark.range(0, 1, 1, 1), _SlowToUnpickle()).collect()

    wait_for_listeners(spark)

    def shown() -> set[str]:
        executions = store.executionsList()
        last = executions.apply(executions.size() - 1)
        values, metrics = store.executionMetrics(last.executionId()), last.metrics()
        each = [metrics.apply(index) for index in range(metrics.size())]
        return {metric.name() for metric in each if values.contains(metric.accumulatorId())}

    names = {"time to start Python workers", "time to initialize Python workers", "time to run Python workers"}
    names |= {"time to execute Python code"} if SPARK_VERSION >= (4, 2) else set()
    until("the times are shown", lambda: names <= shown())
