# SPDX-License-Identifier: Apache-2.0
"""Python aggregates over windows: frames of rows and of values, partitions of any size, nested functions.

The matrix covers types, errors and batches (`tests/e2e/kinds/folds.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
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
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import SPARK_VERSION

# An object, because only a running session could parse the name of a type.
_DOUBLE = T.DoubleType()

Function = Callable[..., Column]

_ROWS = 1_500
_FIRST, _LAST = Window.unboundedPreceding, Window.unboundedFollowing
_HERE = Window.currentRow
_KINDS = ["pandas", "arrow"] if SPARK_VERSION >= (4, 1) else ["pandas"]
each_kind = pytest.mark.parametrize("kind", _KINDS)


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


def _operators(plan: str) -> int:
    """Return the number of the connector's operators in the final plan, without the initial one."""
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


def _frames(spark: SparkSession, kind: str, frames: str) -> DataFrame:
    seen = [SEEN[kind]("id").over(window).alias(name) for name, window in FRAMES[frames]().items()]
    return _numbers(spark).select("id", "text", *seen, "v")


def _frames_of_intervals(spark: SparkSession, kind: str) -> DataFrame:
    spark.udf.register("seen_in_sql", SEEN[kind])
    _numbers(spark).createOrReplaceTempView("numbers_in_windows")
    columns = [f"seen_in_sql(id) OVER (PARTITION BY k {frame}) AS {name}" for name, frame in SQL_FRAMES.items()]
    return spark.sql(f"SELECT id, {', '.join(columns)} FROM numbers_in_windows")


def _partitions(spark: SparkSession, kind: str, partitions: int, frame: str) -> DataFrame:
    return _numbers(spark, partitions).select("*", SUMS[kind]("v").over(WINDOWS[frame]()))


def _without_partitions(spark: SparkSession, kind: str) -> DataFrame:
    total, last = SUMS[kind], Window.orderBy("id").rowsBetween(-3, 0)
    return _numbers(spark).select(total("v").over(Window.partitionBy()), total("v").over(last))


def _no_rows(spark: SparkSession, kind: str) -> DataFrame:
    return _numbers(spark).where("id < 0").select(SUMS[kind]("v").over(_around()))


def _between_other_functions(spark: SparkSession, kind: str) -> DataFrame:
    doubled = F.udf(lambda value: value * 2, "bigint", useArrow=False)
    frame = _numbers(spark).withColumn("x", SUMS[kind](doubled("id")).over(_over("id").rowsBetween(-1, 1)))
    return frame.where("x > 100").groupBy("k").agg(SUMS[kind]("x").alias("y")).orderBy("y")


def _limit(spark: SparkSession, kind: str) -> DataFrame:
    return _numbers(spark).select("id", SUMS[kind]("v").over(_around())).limit(17)


# Queries, and how many rows each gives.
QUERIES: dict[str, tuple[Callable[..., DataFrame], int]] = {
    **{f"frames_of_{name}": (functools.partial(_frames, frames=name), _ROWS) for name in FRAMES},
    "frames_of_intervals": (_frames_of_intervals, _ROWS),
    **{
        f"partitions_{partitions}_{frame}": (functools.partial(_partitions, partitions=partitions, frame=frame), _ROWS)
        for partitions in (1, 30, _ROWS)
        for frame in WINDOWS
    },
    "without_partitions": (_without_partitions, _ROWS),
    "no_rows": (_no_rows, 0),
    "between_other_functions": (_between_other_functions, 30),
    "limit": (_limit, 17),
}


def _pairs() -> Iterator[tuple[str, str]]:
    """Yield each query with one kind in rotation: Spark determines a frame's rows before the kind matters."""
    return zip(itertools.cycle(_KINDS), QUERIES, strict=False)


@pytest.mark.parametrize(("kind", "query"), list(_pairs()))
def test_a_window_gives_what_it_gives_on_stock(sides: Sides, kind: str, query: str) -> None:
    if query == "frames_of_intervals":
        needs_spark((4, 0), "frames of days over dates")
    ask, rows = QUERIES[query]
    assert len(sides.assert_same(functools.partial(ask, kind=kind)).rows) == rows


@each_kind
@pytest.mark.parametrize("frame", WINDOWS)
def test_a_partition_is_larger_than_a_request(sides: Sides, kind: str, frame: str) -> None:
    confs = {
        "spark.updraft.udf.batchBytes": "4k",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.windowExec.buffer.in.memory.threshold": "50",
        "spark.sql.windowExec.buffer.spill.threshold": "200",
    }
    sides.assert_same(functools.partial(_partitions, kind=kind, partitions=2, frame=frame), confs=confs)


@each_kind
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


def test_every_column_passes_by_a_window(sides: Sides, table: Path) -> None:
    around = Window.partitionBy("boolean").orderBy("id").rowsBetween(-1, 1)
    sides.assert_same(lambda spark: spark.read.parquet(str(table)).select("*", SUMS["pandas"]("int").over(around)))


def test_an_iterator_over_a_window_is_refused_in_stocks_words(sides: Sides) -> None:
    iterator = F.pandas_udf(lambda batches: 1.0, "double", F.PandasUDFType.GROUPED_AGG_ITER)
    sides.assert_refused_alike(lambda spark: _numbers(spark).select(iterator("v").over(_around())))


def test_two_kinds_over_one_window_are_refused_in_stocks_words(sides: Sides) -> None:
    needs_spark((4, 1), "second kind for windows")
    both: Query = lambda spark: _numbers(spark).select(*(SUMS[kind]("v").over(_around()) for kind in _KINDS))  # noqa: E731
    sides.assert_refused_alike(both)
