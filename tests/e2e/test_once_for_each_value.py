# SPDX-License-Identifier: Apache-2.0
"""Option `spark.updraft.udf.callOncePerValue`: the same rows as stock PySpark, with one call per value in a task."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications import deployed_functions
from tests.e2e.sides import Sides
from tests.support.plan_metrics import metrics_of
from tests.support.spark import ENABLED, ENDPOINT, SPARK_VERSION, executed_plan, runtime_confs

_SETTING = "spark.updraft.udf.callOncePerValue"
_ON, _AUTO = {_SETTING: "on"}, {_SETTING: "auto"}
_EITHER = pytest.mark.parametrize("arrow", [True, False], ids=["arrow", "pickled"])
# Before 4.1, a null turns the integers of a batch into floats, so an argument depends on the other rows.
_ONCE_WITH_ARROW = SPARK_VERSION >= (4, 1)
_ONCE = pytest.mark.parametrize(
    "arrow",
    [
        pytest.param(
            True, marks=pytest.mark.skipif(not _ONCE_WITH_ARROW, reason="before Spark 4.1, it is called for every row")
        ),
        False,
    ],
    ids=["arrow", "pickled"],
)
_OPERATOR = "FlightEvalPython"
_ROWS = 30_000

_VALUES = {
    "double": "double('NaN'), 0.0D, -0.0D, double('Infinity'), 1.5D, null",
    "float": "float('NaN'), float(0.0), float('-0.0'), float(1.5), null",
    "decimal": "1.10BD, -1.10BD, 0.00BD, null",
    "large_decimal": "cast(1.1 as decimal(38, 18)), cast(-1.1 as decimal(38, 18)), cast(0 as decimal(38, 18)), null",
    "string": "'', 'a', 'A', 'a ', 'ä', null",
    "binary": "x'', x'00', x'0000', null",
    "boolean": "true, false, null",
    "byte": "1Y, -1Y, null",
    "date": "date'1970-01-01', date'0001-01-01', null",
    "timestamp": "timestamp'2020-02-02 02:02:02.000001', timestamp'1969-12-31 23:59:59', null",
    "array": "array(1, null), array(null, 1), array(), array(0), null",
    "map": "map('a', 1), map('a', null), map('b', 1), map(), null",
    "struct": "named_struct('x', 1, 'y', ''), named_struct('x', 1, 'y', null), named_struct('x', null, 'y', ''), null",
    "nested": "array(named_struct('x', array(0.0D))), array(named_struct('x', array(-0.0D))), array(null), null",
}


@pytest.fixture
def on_the_pool(sides: Sides, spark: SparkSession, stock_only: bool) -> Callable[..., tuple[DataFrame, list[Any]]]:
    """Run a frame on the pool; return it with its rows."""
    if stock_only:
        pytest.skip("these tests are about Updraft alone")

    def run(query: Callable[[], DataFrame], confs: dict[str, str]) -> tuple[DataFrame, list[Any]]:
        with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"], **confs}):
            frame = query()
            return frame, [tuple(row) for row in frame.collect()]

    return run


def _calls(frame: DataFrame) -> int:
    return metrics_of(frame, _OPERATOR)["updraftCalls"]


def _numbers(spark: SparkSession, distinct: int, rows: int = _ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 2).select("id", (F.col("id") * 7919 % distinct).alias("k"))


@_EITHER
@pytest.mark.parametrize("kind", _VALUES)
def test_values_of_every_type_are_told_apart_as_python_does_and_repeated(sides: Sides, kind: str, arrow: bool) -> None:
    """Each value comes several times. One function shows exactly what it was given, another returns it."""

    def query(spark: SparkSession) -> DataFrame:
        values = spark.sql(f"SELECT explode(array({_VALUES[kind]})) AS x")
        shown = F.udf(repr, "string", useArrow=arrow)
        same = F.udf(lambda x: x, values.schema["x"].dataType, useArrow=arrow)
        rows = values.crossJoin(spark.range(0, 5, 1, 1))
        return rows.select("id", "x", shown("x").alias("shown"), same("x").alias("same"))

    sides.assert_same(query, confs=_ON)


@_EITHER
def test_rows_keep_their_order_and_several_functions_their_arguments(sides: Sides, arrow: bool) -> None:
    def query(spark: SparkSession) -> DataFrame:
        added = F.udf(lambda x, y: f"{x}+{y}", "string", useArrow=arrow)
        doubled = F.udf(lambda x: x * 2, "bigint", useArrow=arrow)
        rows = _numbers(spark, 10).withColumn("j", F.col("id") % 3)
        return rows.select("id", added("k", "j"), doubled("k"), doubled(doubled("j")), added(y="k", x=F.col("j") + 1))

    answer = sides.assert_same(query, confs=_ON)
    assert [row[0] for row in answer.rows] == list(range(_ROWS))


@_ONCE
def test_a_task_calls_a_function_once_for_each_value(
    spark: SparkSession, on_the_pool: Any, tmp_path: Path, arrow: bool
) -> None:
    notes = tmp_path / "calls"

    def noted(x: int) -> int:
        with notes.open("a") as file:
            file.write(f"{x}\n")
        return x + 1

    function = F.udf(noted, "bigint", useArrow=arrow)
    frame, rows = on_the_pool(lambda: _numbers(spark, 100).select("k", function("k")), _ON)
    assert all(result == key + 1 for key, result in rows)
    assert len(rows) == _ROWS
    # Each of the two tasks has all values.
    assert Counter(notes.read_text().split()) == {str(key): 2 for key in range(100)}
    assert _calls(frame) == 200
    assert metrics_of(frame, _OPERATOR)["pythonNumRowsReceived"] == _ROWS
    assert f"{_SETTING.rsplit('.', 1)[1]}=on" in executed_plan(frame)


def test_without_the_setting_every_row_is_a_call(spark: SparkSession, on_the_pool: Any) -> None:
    function = F.udf(lambda x: x, "bigint", useArrow=True)
    frame, _ = on_the_pool(lambda: _numbers(spark, 100).select(function("k")), {})
    assert "updraftCalls" not in metrics_of(frame, _OPERATOR)
    assert "callOncePerValue" not in executed_plan(frame)


def test_a_task_that_remembers_too_many_values_begins_anew(spark: SparkSession, on_the_pool: Any) -> None:
    """Each of the two tasks has 150,000 texts of 200 bytes twice."""
    function = F.udf(lambda text: text.strip("."), "string", useArrow=_ONCE_WITH_ARROW)

    def query() -> DataFrame:
        texts = spark.range(0, 300_000, 1, 1).select((F.col("id") % 150_000).alias("k"))
        results = texts.select("k", function(F.lpad(F.col("k").cast("string"), 200, ".")).alias("r"))
        return results.agg(F.count("*"), F.sum((F.col("r") == F.col("k").cast("string")).cast("int")))

    frame, rows = on_the_pool(query, _ON)
    assert rows == [(300_000, 300_000)]
    assert 150_000 < _calls(frame) <= 300_000


@_ONCE
@pytest.mark.parametrize("confs", [_ON, _AUTO], ids=["on", "auto"])
def test_auto_stops_where_values_do_not_repeat(
    spark: SparkSession, on_the_pool: Any, arrow: bool, confs: dict[str, str]
) -> None:
    """The first rows are all different, the others equal: auto stops before it sees those."""
    rows = 60_000
    function = F.udf(lambda x: x + 1, "bigint", useArrow=arrow)
    key = F.when(F.col("id") < 20_000, F.col("id")).otherwise(F.lit(-1))
    numbers = spark.range(0, rows, 1, 1).select("id", key.alias("k"))
    frame, answers = on_the_pool(lambda: numbers.select("id", "k", function("k")), confs)
    assert [answer[0] for answer in answers] == list(range(rows))
    assert all(result == key + 1 for _, key, result in answers)
    assert _calls(frame) == (20_001 if confs is _ON else rows)


@_ONCE
def test_auto_goes_on_where_values_repeat(spark: SparkSession, on_the_pool: Any, arrow: bool) -> None:
    function = F.udf(lambda x: x + 1, "bigint", useArrow=arrow)
    frame, _ = on_the_pool(lambda: _numbers(spark, 100, 100_000).select(function("k")), _AUTO)
    assert _calls(frame) == 200


def test_a_nondeterministic_function_is_called_for_every_row(spark: SparkSession, on_the_pool: Any) -> None:
    function = F.udf(lambda x: random.random(), "double", useArrow=True).asNondeterministic()
    frame, rows = on_the_pool(lambda: _numbers(spark, 1).select(function("k")), _ON)
    assert len(set(rows)) == _ROWS
    assert "callOncePerValue" not in executed_plan(frame)


def test_a_function_of_batches_is_called_as_ever(spark: SparkSession, on_the_pool: Any) -> None:
    counted = F.pandas_udf(lambda values: values * 0 + len(values), "bigint", F.PandasUDFType.SCALAR)
    frame, rows = on_the_pool(lambda: _numbers(spark, 1).select(counted("k")), _ON)
    assert rows[0][0] > 1
    assert "callOncePerValue" not in executed_plan(frame)


@_EITHER
def test_a_function_with_an_accumulator_is_called_for_every_row(
    spark: SparkSession, on_the_pool: Any, arrow: bool
) -> None:
    counter: Accumulator[int] = spark.sparkContext.accumulator(0)

    def count(x: int) -> int:
        counter.add(1)
        return x

    frame, _ = on_the_pool(lambda: _numbers(spark, 1).select(F.udf(count, "bigint", useArrow=arrow)("k")), _ON)
    assert counter.value == _ROWS
    assert "callOncePerValue" not in executed_plan(frame)


def test_a_large_function_is_called_for_every_row(spark: SparkSession, on_the_pool: Any) -> None:
    """Spark ships a large function as a broadcast variable, so the driver cannot see its accumulators."""
    counter: Accumulator[int] = spark.sparkContext.accumulator(0)
    ballast = random.Random(7).randbytes(2 << 20)

    def count(x: int) -> int:
        counter.add(len(ballast) > 0)
        return x

    function = F.udf(count, "bigint", useArrow=True)
    on_the_pool(lambda: _numbers(spark, 1).select(function("k")), _ON)
    assert counter.value == _ROWS


def test_a_function_with_a_broadcast_variable_is_called_once(spark: SparkSession, on_the_pool: Any) -> None:
    steps = spark.sparkContext.broadcast([1, 2, 3])
    function = F.udf(lambda x: x + steps.value[0], "bigint", useArrow=_ONCE_WITH_ARROW)
    frame, _ = on_the_pool(lambda: _numbers(spark, 1).select(function("k")), _ON)
    assert "callOncePerValue" in executed_plan(frame)


@_EITHER
def test_a_function_that_raises_has_the_error_of_stock(sides: Sides, arrow: bool) -> None:
    def inverse(x: int) -> int:
        return 100 // (x - 7)

    sides.assert_refused_alike(
        lambda spark: _numbers(spark, 10).select(F.udf(inverse, "bigint", useArrow=arrow)("k")), _ON
    )


@_ONCE
def test_a_worker_that_dies_loses_no_result(spark: SparkSession, on_the_pool: Any, tmp_path: Path, arrow: bool) -> None:
    died = tmp_path / "died"

    def fragile(x: int) -> int:
        if x == 15_000 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x + 1

    function = F.udf(fragile, "bigint", useArrow=arrow)
    numbers = spark.range(0, 60_000, 1, 1).select("id", (F.col("id") % 20_000).alias("k"))
    frame, rows = on_the_pool(lambda: numbers.select("id", "k", function("k")), _ON)
    assert [row[0] for row in rows] == list(range(60_000))
    assert all(result == key + 1 for _, key, result in rows)
    assert metrics_of(frame, _OPERATOR)["updraftReplays"] == 1
    assert _calls(frame) == 20_000


@_EITHER
def test_batches_of_a_columnar_child_and_a_limit(sides: Sides, tmp_path: Path, arrow: bool) -> None:
    path = str(tmp_path / "numbers")
    _numbers(sides.spark, 50).select("id", "k", F.col("k").cast("string").alias("s")).write.parquet(path)

    def query(spark: SparkSession) -> DataFrame:
        function = F.udf(lambda k, s: f"{k}{s}", "string", useArrow=arrow)
        return spark.read.parquet(path).select("id", function("k", "s").alias("r")).orderBy("id")

    sides.assert_same(query, confs=_ON)
    limited = sides.updraft(lambda spark: query(spark).limit(10), confs=_ON)
    assert len(limited.rows) == 10


def test_a_registered_function_of_rows_is_called_once_too(named: SparkSession) -> None:
    with runtime_confs(named, _ON):
        frame = named.sql(f"SELECT id, updraft.default.rebate(id % 10, 20) FROM range(0, {_ROWS}, 1, 2)")
        rows = frame.collect()
        batches = named.sql("SELECT updraft.default.twice(id % 10) FROM range(100)")
    assert [row[1] for row in rows] == [deployed_functions.rebate(float(row[0] % 10), 20.0) for row in rows]
    assert metrics_of(frame, "FlightCall")["updraftCalls"] == 20
    assert "callOncePerValue" not in executed_plan(batches)
