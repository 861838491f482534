# SPDX-License-Identifier: Apache-2.0
"""Python aggregates over windows: frames of rows and of values, partitions of any size, types and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import Query, Sides
from tests.e2e.test_aggregates import BAD_RESULTS, assert_alike
from tests.e2e.types import TYPE_CASES, TypeCase

# Not by its name, which only a running session could read.
_DOUBLE = T.DoubleType()

Function = Callable[..., Column]

_ROWS = 3_000
_FIRST, _LAST = Window.unboundedPreceding, Window.unboundedFollowing
_HERE = Window.currentRow


def _pandas(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG)  # type: ignore[no-any-return]


def _arrow(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG)  # type: ignore[no-any-return]


def _weighted(values: pd.Series, weights: pd.Series) -> Any:
    return (values * weights).sum()


def _arrow_weighted(values: pa.Array, weights: pa.Array) -> Any:
    return pc.sum(pc.multiply(values, weights))


SUMS = {"pandas": _pandas(lambda values: values.sum()), "arrow": _arrow(pc.sum)}
WEIGHTED = {"pandas": _pandas(_weighted), "arrow": _arrow(_arrow_weighted)}
SEEN = {
    "pandas": _pandas(lambda values: str(values.tolist()), T.StringType()),
    "arrow": _arrow(lambda values: str(values.to_pylist()), T.StringType()),
}


@pytest.fixture(params=list(SUMS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _operators(plan: str) -> int:
    """Operators of the connector in the plan that ran, without the one that was planned first."""
    return plan.split("== Initial Plan ==")[0].count("FlightWindow")


def _numbers(spark: SparkSession, partitions: int = 30) -> DataFrame:
    return spark.range(0, _ROWS, 1, 3).select(
        "id",
        (F.col("id") * 7919 % partitions).alias("k"),
        (F.col("id") % 11).alias("step"),
        F.when(F.col("id") % 7 != 0, F.col("id") / 3).alias("v"),
        F.date_add(F.lit("2024-02-20").cast("date"), (F.col("id") % 30).cast("int")).alias("day"),
        F.timestamp_seconds(F.col("id") * 977 % 86_400).alias("time"),
        F.when(F.col("id") % 5 != 0, F.col("id") % 13).alias("gaps"),
        (F.col("id") % 17 / 4).cast("decimal(10, 3)").alias("price"),
        F.concat(F.lit("row "), F.col("id") % 10).alias("text"),
    )


def _over(*order: Any) -> WindowSpec:
    return Window.partitionBy("k").orderBy(*order)


def _whole() -> WindowSpec:
    return Window.partitionBy("k")


def _around() -> WindowSpec:
    return _over("id").rowsBetween(-2, 2)


WINDOWS: dict[str, Callable[[], WindowSpec]] = {"partition": _whole, "rows_around": _around}

# Frames that share an order share an operator.
FRAMES: dict[str, Callable[[], dict[str, WindowSpec]]] = {
    "rows": lambda: {
        "whole": _over("id").rowsBetween(_FIRST, _LAST),
        "around": _over("id").rowsBetween(-2, 2),
        "before": _over("id").rowsBetween(_FIRST, -1),
        "up_to_here": _over("id").rowsBetween(_FIRST, _HERE),
        "from_here": _over("id").rowsBetween(_HERE, _LAST),
        "here": _over("id").rowsBetween(_HERE, _HERE),
        "beyond_the_end": _over("id").rowsBetween(5, 7),
    },
    "values": lambda: {
        "default": _over("step"),
        "around": _over("step").rangeBetween(-3, 1),
        "up_to_here": _over("step").rangeBetween(_FIRST, _HERE),
        "from_here": _over("step").rangeBetween(_HERE, _LAST),
        "far_away": _over("step").rangeBetween(40, 50),
    },
    "values_down": lambda: {"around": _over(F.desc("step")).rangeBetween(-3, 1)},
    "nulls_first": lambda: {"around": _over("gaps").rangeBetween(-1, 1)},
    "nulls_last": lambda: {"around": _over(F.asc_nulls_last("gaps")).rangeBetween(-1, 1)},
    "peers_of_two_orders": lambda: {"up_to_here": _over("step", F.desc("gaps")).rangeBetween(_FIRST, _HERE)},
}
SQL_FRAMES = {
    "days": "ORDER BY day RANGE BETWEEN INTERVAL 2 DAYS PRECEDING AND CURRENT ROW",
    "months": "ORDER BY day RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND INTERVAL 1 MONTH FOLLOWING",
    "hours": "ORDER BY time RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND INTERVAL 2 HOURS FOLLOWING",
    "decimals": "ORDER BY price RANGE BETWEEN 0.500 PRECEDING AND 0.250 FOLLOWING",
    "doubles": "ORDER BY v RANGE BETWEEN 10.5D PRECEDING AND 3.0D FOLLOWING",
}


@pytest.mark.parametrize("frames", FRAMES)
def test_a_frame_holds_the_rows_of_stock(sides: Sides, kind: str, frames: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        seen = [SEEN[kind]("id").over(window).alias(name) for name, window in FRAMES[frames]().items()]
        return _numbers(spark).select("id", "text", *seen, "v")

    answer = sides.assert_same(query)
    assert sides.compares_stock_with_itself or _operators(answer.plan) == 1


def test_a_frame_of_intervals_holds_the_rows_of_stock(sides: Sides, kind: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        spark.udf.register("seen_in_sql", SEEN[kind])
        _numbers(spark).createOrReplaceTempView("numbers_in_windows")
        columns = [f"seen_in_sql(id) OVER (PARTITION BY k {frame}) AS {name}" for name, frame in SQL_FRAMES.items()]
        return spark.sql(f"SELECT id, {', '.join(columns)} FROM numbers_in_windows")

    sides.assert_same(query)


@pytest.mark.parametrize(("partitions", "transport"), [(1, "tcp"), (30, "unix"), (_ROWS, "tcp")])
@pytest.mark.parametrize("frame", WINDOWS)
def test_partitions_of_any_size(sides: Sides, kind: str, frame: str, partitions: int, transport: str) -> None:
    answer = sides.assert_same(
        lambda spark: _numbers(spark, partitions).select("*", SUMS[kind]("v").over(WINDOWS[frame]()).alias("x")),
        transport,
    )
    assert len(answer.rows) == _ROWS


@pytest.mark.parametrize("frame", WINDOWS)
def test_a_partition_is_larger_than_a_request(sides: Sides, kind: str, frame: str) -> None:
    confs = {
        "spark.updraft.udf.batchBytes": "4k",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.windowExec.buffer.in.memory.threshold": "50",
        "spark.sql.windowExec.buffer.spill.threshold": "200",
    }
    sides.assert_same(
        lambda spark: _numbers(spark, 2).select("*", SUMS[kind]("v").over(WINDOWS[frame]()).alias("x")), confs=confs
    )


def test_a_window_needs_no_partition(sides: Sides, kind: str) -> None:
    total = SUMS[kind]
    sides.assert_same(
        lambda spark: _numbers(spark).select(
            total("v").over(Window.partitionBy()), total("v").over(Window.orderBy("id").rowsBetween(-3, 0))
        )
    )


def test_no_rows_give_no_rows(sides: Sides, kind: str) -> None:
    answer = sides.assert_same(lambda spark: _numbers(spark).where("id < 0").select(SUMS[kind]("v").over(_around())))
    assert not answer.rows


def test_several_functions_and_frames_share_one_exchange(sides: Sides, kind: str) -> None:
    total, weighted = SUMS[kind], WEIGHTED[kind]

    def query(spark: SparkSession) -> DataFrame:
        window = _over("id")
        around, before = window.rowsBetween(-2, 2), window.rowsBetween(_FIRST, -1)
        return _numbers(spark).select(
            "id",
            total("v").over(window.rowsBetween(_FIRST, _LAST)).alias("a"),
            total("v").over(around).alias("b"),
            total("id").over(before).alias("c"),
            weighted("v", "id").over(around).alias("d"),
            weighted(weights=F.col("v"), values=F.col("id") + 1).over(before).alias("e"),
            weighted("id", weights=F.lit(2.5)).over(window.rowsBetween(_FIRST, _LAST)).alias("f"),
            total("v").over(around).alias("g"),
            (total("v").over(around) * 2 + F.col("id")).alias("h"),
        )

    answer = sides.assert_same(query)
    assert sides.compares_stock_with_itself or _operators(answer.plan) == 1


def test_kinds_and_orders_can_be_mixed(sides: Sides) -> None:
    def query(spark: SparkSession) -> DataFrame:
        return _numbers(spark).select(
            "id",
            SUMS["pandas"]("v").over(_around()).alias("a"),
            F.sum("v").over(_around()).alias("b"),
            F.row_number().over(_over("id")).alias("c"),
            SUMS["arrow"]("v").over(_over(F.desc("step"), "id")).alias("d"),
        )

    answer = sides.assert_same(query)
    assert sides.compares_stock_with_itself or _operators(answer.plan) == 2


def test_a_window_follows_and_feeds_other_functions(sides: Sides, kind: str) -> None:
    doubled = F.udf(lambda value: value * 2, "bigint", useArrow=False)

    def query(spark: SparkSession) -> DataFrame:
        frame = _numbers(spark).withColumn("x", SUMS[kind](doubled("id")).over(_over("id").rowsBetween(-1, 1)))
        return frame.where("x > 100").groupBy("k").agg(SUMS[kind]("x").alias("y")).orderBy("y")

    sides.assert_same(query)


def test_a_limit_over_a_window_ends_early_and_right(sides: Sides, kind: str) -> None:
    answer = sides.assert_same(
        lambda spark: _numbers(spark).select("id", SUMS[kind]("v").over(_around()).alias("x")).limit(17)
    )
    assert len(answer.rows) == 17


def test_every_column_passes_by_a_window(sides: Sides, table: Path) -> None:
    sides.assert_same(
        lambda spark: spark.read.parquet(str(table)).select(
            "*", SUMS["arrow"]("int").over(Window.partitionBy("boolean").orderBy("id").rowsBetween(-1, 1)).alias("x")
        )
    )


@pytest.mark.parametrize("case", TYPE_CASES, ids=lambda case: case.name)
def test_types_fold_to_what_stock_makes_of_them(sides: Sides, table: Path, kind: str, case: TypeCase) -> None:
    def query(spark: SparkSession) -> DataFrame:
        rows = spark.read.parquet(str(table))
        if case.expression is not None:
            rows = rows.withColumn(case.name, F.expr(case.expression))
        last = _pandas(_last_of_series, case.type) if kind == "pandas" else _arrow(_last_of_array, case.type)
        window = Window.partitionBy(F.col("id") % 4).orderBy("id")
        return rows.select(
            "id",
            last(case.name).over(window.rowsBetween(-1, 1)).alias("around"),
            last(case.name).over(window.rowsBetween(_FIRST, _LAST)).alias("whole"),
        )

    assert_alike(sides, query)


def _last_of_series(values: pd.Series | pd.DataFrame) -> Any:
    known = values.dropna()
    return known.iloc[-1] if len(known) else None


def _last_of_array(values: pa.Array) -> Any:
    known = values.drop_null()
    return known[-1] if len(known) else None


_FAILURES = ["pandas_raises_late", "pandas_series", "pandas_text", "pandas_null", "arrow_raises", "arrow_array"]


@pytest.mark.parametrize("frame", WINDOWS)
@pytest.mark.parametrize("result", [*_FAILURES, "arrow_text", "arrow_null", "arrow_int_of_double"])
def test_a_result_that_does_not_fit_reads_as_on_stock(sides: Sides, result: str, frame: str) -> None:
    function = BAD_RESULTS[result]()
    assert_alike(sides, lambda spark: _numbers(spark).select(function("id").over(WINDOWS[frame]()).alias("x")))


def test_what_stock_refuses_is_refused_in_the_same_words(sides: Sides) -> None:
    iterator = F.pandas_udf(lambda batches: 1.0, "double", F.PandasUDFType.GROUPED_AGG_ITER)
    for functions in ([iterator], [SUMS["pandas"], SUMS["arrow"]]):
        query: Query = lambda spark, functions=functions: _numbers(spark).select(  # type: ignore[misc] # noqa: E731
            *(function("v").over(_around()) for function in functions)
        )
        assert_alike(sides, query)
