# SPDX-License-Identifier: Apache-2.0
"""Python aggregates: one value for a group, of every kind, over keys, sizes of groups, types and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import Query, Sides, canonical
from tests.e2e.types import TYPE_CASES, TypeCase

_ROWS = 10_000

# Not by its name, which only a running session could read.
_DOUBLE, _TEXT = T.DoubleType(), T.StringType()

Function = Callable[..., Column]


def _pandas(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG)  # type: ignore[no-any-return]


def _pandas_iterator(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG_ITER)  # type: ignore[no-any-return]


def _arrow(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG)  # type: ignore[no-any-return]


def _arrow_iterator(function: Callable[..., Any], result: Any = _DOUBLE) -> Function:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG_ITER)  # type: ignore[no-any-return]


def _sum_of_batches(batches: Iterator[pd.Series]) -> float:
    return float(sum(values.sum() for values in batches))


def _sum_of_arrays(batches: Iterator[pa.Array]) -> float:
    return float(sum(pc.sum(values).as_py() or 0 for values in batches))


def _sizes(batches: Iterator[Any]) -> str:
    return str([len(values) for values in batches])


SUMS = {
    "pandas": _pandas(lambda values: values.sum()),
    "pandas_iterator": _pandas_iterator(_sum_of_batches),
    "arrow": _arrow(pc.sum),
    "arrow_iterator": _arrow_iterator(_sum_of_arrays),
}
weighted = _pandas(lambda values, weights: (values * weights).sum())
arrow_weighted = _arrow(lambda values, weights: pc.sum(pc.multiply(values, weights)))


@pytest.fixture(params=list(SUMS))
def total(request: pytest.FixtureRequest) -> Function:
    """The sum of a column, in each kind."""
    return SUMS[request.param]


def _numbers(spark: SparkSession, groups: int = 500, partitions: int = 3) -> DataFrame:
    return spark.range(0, _ROWS, 1, partitions).select(
        "id",
        (F.col("id") * 7919 % groups).alias("k"),
        F.when(F.col("id") % 7 != 0, F.col("id") / 3).alias("v"),
        F.concat(F.lit("row "), F.col("id") % 10).alias("text"),
    )


@pytest.mark.parametrize(("groups", "transport"), [(3, "unix"), (500, "tcp"), (_ROWS, "tcp")])
def test_every_group_gives_one_row(sides: Sides, total: Function, groups: int, transport: str) -> None:
    answer = sides.assert_same(lambda spark: _numbers(spark, groups).groupBy("k").agg(total("v").alias("x")), transport)
    assert len(answer.rows) == groups


def test_a_group_is_larger_than_a_request(sides: Sides, total: Function) -> None:
    confs = {"spark.updraft.udf.batchBytes": "4k", "spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    sides.assert_same(
        lambda spark: _numbers(spark, 2).groupBy("k").agg(total("v").alias("x")),
        confs=confs,
    )


@pytest.mark.parametrize("records", [1, 7, 10_000])
@pytest.mark.parametrize("kind", [_pandas_iterator, _arrow_iterator])
def test_an_iterator_gets_the_batches_of_stock(sides: Sides, kind: Callable[..., Function], records: int) -> None:
    sizes = kind(_sizes, _TEXT)
    confs = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(records), "spark.updraft.udf.batchBytes": "16k"}
    sides.assert_same(
        lambda spark: _numbers(spark, 3).where("k > 0 or id < 300").groupBy("k").agg(sizes("v").alias("x")),
        confs=confs,
    )


def test_an_iterator_may_be_left_unread(sides: Sides) -> None:
    first = _pandas_iterator(lambda batches: next(batches).iloc[0])
    sides.assert_same(
        lambda spark: _numbers(spark, 40).groupBy("k").agg(first("id").alias("x")),
        confs={"spark.sql.execution.arrow.maxRecordsPerBatch": "50"},
    )


def test_all_rows_are_one_group_where_there_is_no_key(sides: Sides, total: Function) -> None:
    answer = sides.assert_same(lambda spark: _numbers(spark).agg(total("v").alias("x")))
    assert len(answer.rows) == 1


def test_no_rows_make_no_group_as_on_stock(sides: Sides, total: Function) -> None:
    for query in (
        lambda spark: _numbers(spark).where("id < 0").agg(total("v").alias("x")),
        lambda spark: _numbers(spark).where("id < 0").groupBy("k").agg(total("v").alias("x")),
    ):
        sides.assert_same(query)


def test_empty_partitions_cost_nothing_and_lose_nothing(sides: Sides, total: Function) -> None:
    sides.assert_same(
        lambda spark: _numbers(spark, partitions=9).where("id % 1000 = 3").groupBy("k").agg(total("v").alias("x"))
    )


KEYS = {
    "null": "nullif(id % 4, 2)",
    "all_null": "cast(null as string)",
    "double": "element_at(array(0.0D, -0.0D, double('NaN'), null, 1.5D), cast(id % 5 + 1 as int))",
    "string": "concat('é', id % 3)",
    "collated": "collate(element_at(array('a', 'A', 'b', null), cast(id % 4 + 1 as int)), 'UTF8_LCASE')",
    "struct": "struct(id % 2 as a, nullif(id % 3, 1) as b)",
    "array": "array(id % 2, null)",
    "date": "date_add(date '2024-02-28', cast(id % 3 as int))",
    "decimal": "cast(id % 3 as decimal(30, 5))",
}


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_any_type_part_the_groups_of_stock(sides: Sides, key: str) -> None:
    sides.assert_same(
        lambda spark: _numbers(spark).groupBy(F.expr(KEYS[key]).alias("key")).agg(SUMS["arrow"]("v").alias("x"))
    )


def test_several_keys_and_expressions_of_keys(sides: Sides, total: Function) -> None:
    sides.assert_same(
        lambda spark: (
            _numbers(spark)
            .groupBy("text", (F.col("k") % 3).alias("third"))
            .agg((total("v") * 2 + F.col("third")).alias("x"))
            .select("x", F.upper("text"), "third")
        )
    )


def test_several_aggregates_share_one_exchange(sides: Sides) -> None:
    answer = sides.assert_same(
        lambda spark: (
            _numbers(spark)
            .groupBy("k")
            .agg(
                SUMS["pandas"]("v").alias("a"),
                SUMS["pandas"]("id").alias("b"),
                weighted("v", "id").alias("c"),
                weighted(weights=F.col("v"), values=F.col("id") + 1).alias("d"),
                weighted("v", weights=F.lit(2.5)).alias("e"),
                weighted("id", "id").alias("f"),
            )
        )
    )
    assert sides.compares_stock_with_itself or answer.plan.split("== Initial Plan ==")[0].count("FlightAggregate") == 1


def test_arrow_aggregates_take_named_arguments(sides: Sides) -> None:
    sides.assert_same(
        lambda spark: (
            _numbers(spark)
            .groupBy("k")
            .agg(arrow_weighted(weights=F.col("id"), values=F.col("v")), arrow_weighted("v", "v"))
        )
    )


def test_results_can_be_used_in_having_sort_and_joins(sides: Sides, total: Function) -> None:
    def query(spark: SparkSession) -> DataFrame:
        totals = _numbers(spark).groupBy("k").agg(total("v").alias("x")).where("x > 1000").orderBy(F.desc("x"))
        return totals.join(_numbers(spark, 50), "k").orderBy("id").limit(300)

    sides.assert_same(query)


def test_an_argument_can_be_the_result_of_a_function(sides: Sides, total: Function) -> None:
    doubled = F.udf(lambda value: value * 2, "bigint", useArrow=False)
    sides.assert_same(lambda spark: _numbers(spark).groupBy("k").agg(total(doubled("id")).alias("x")))


def test_a_key_can_be_the_result_of_a_function(sides: Sides, total: Function) -> None:
    third = F.udf(lambda value: value % 3, "bigint", useArrow=False)
    sides.assert_same(lambda spark: _numbers(spark).groupBy(third("id").alias("t")).agg(total("v").alias("x")))


def test_a_pivot_of_an_aggregate(sides: Sides) -> None:
    sides.assert_same(
        lambda spark: (
            _numbers(spark).groupBy("k").agg(SUMS["pandas"]("v").alias("x")).groupBy().pivot("k", [1, 2]).sum("x")
        )
    )


def test_sessions_are_groups(sides: Sides, total: Function) -> None:
    def query(spark: SparkSession) -> DataFrame:
        seconds = F.floor(F.col("id") / 40) * 600 + F.col("id") % 40
        frame = _numbers(spark).withColumn("time", F.timestamp_seconds(seconds))
        return frame.groupBy(F.session_window("time", "5 minutes").alias("w"), "text").agg(total("v").alias("x"))

    answer = sides.assert_same(query)
    assert len(answer.rows) > 1000


def test_a_registered_aggregate_runs_from_sql(sides: Sides, total: Function) -> None:
    def query(spark: SparkSession) -> DataFrame:
        spark.udf.register("total_in_sql", total)
        _numbers(spark).createOrReplaceTempView("numbers_to_fold")
        return spark.sql("SELECT k, total_in_sql(v) AS x FROM numbers_to_fold GROUP BY k HAVING total_in_sql(v) > 10")

    sides.assert_same(query)


def test_a_nondeterministic_aggregate_runs_on_the_pool(sides: Sides) -> None:
    function = _pandas(lambda values: values.max()).asNondeterministic()  # type: ignore[attr-defined]
    sides.assert_same(lambda spark: _numbers(spark).groupBy("k").agg(function("id").alias("x")))


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.parametrize("case", TYPE_CASES, ids=lambda case: case.name)
def test_types_fold_to_what_stock_makes_of_them(sides: Sides, table: Path, case: TypeCase, kind: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        frame = spark.read.parquet(str(table))
        if case.expression is not None:
            frame = frame.withColumn(case.name, F.expr(case.expression))
        last = _pandas(_last_of_series, case.type) if kind == "pandas" else _arrow(_last_of_array, case.type)
        seen = _pandas(_pandas_text, _TEXT) if kind == "pandas" else _arrow(_arrow_text, _TEXT)
        return frame.groupBy((F.col("id") % 4).alias("key")).agg(
            seen(case.name).alias("seen"), last(case.name).alias("last")
        )

    assert_alike(sides, query)


def _pandas_text(values: pd.Series | pd.DataFrame) -> str:
    if isinstance(values, pd.DataFrame):
        return repr(values.to_dict("records"))
    return f"{values.dtype} {list(map(repr, values))}"


def _arrow_text(values: pa.Array) -> str:
    return f"{values.type} {values.to_pylist()!r}"


def _last_of_series(values: pd.Series | pd.DataFrame) -> Any:
    known = values.dropna()
    return known.iloc[-1] if len(known) else None


def _last_of_array(values: pa.Array) -> Any:
    known = values.drop_null()
    return known[-1] if len(known) else None


def assert_alike(sides: Sides, query: Query) -> None:
    """The rows of stock, or its error."""
    stock, ours = sides.stock(query), sides.updraft(query)
    assert type(ours.error) is type(stock.error), ours.error
    if stock.error is not None:
        assert _said(ours.error) == _said(stock.error)
    else:
        sides.assert_ran_on_the_pool(ours)
        assert list(map(canonical, ours.rows)) == list(map(canonical, stock.rows))


def _said(error: Exception | None) -> str:
    """What the user is told, without numbers of columns: Python's exception, the JVM's innermost, or the first line."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if isinstance(error, PythonException):
        return lines[-1]
    return re.sub(r"#\d+", "#", causes[-1] if causes else lines[0])


def _failing(values: Any) -> Any:
    raise ValueError("a group that nobody likes")


def _failing_late(values: pd.Series) -> Any:
    if values.min() > 400:
        raise KeyError("late")
    return 1.0


BAD_RESULTS: dict[str, Callable[[], Function]] = {
    "pandas_raises": lambda: _pandas(_failing),
    "pandas_raises_late": lambda: _pandas(_failing_late),
    "pandas_exits": lambda: _pandas(lambda values: (_ for _ in ()).throw(SystemExit(3))),
    "pandas_series": lambda: _pandas(lambda values: values),
    "pandas_list": lambda: _pandas(lambda values: [1.0, 2.0]),
    "pandas_text": lambda: _pandas(lambda values: "text"),
    "pandas_null": lambda: _pandas(lambda values: None),
    "pandas_int_of_double": lambda: _pandas(lambda values: 1.5, "int"),
    "pandas_decimal_of_int": lambda: _pandas(lambda values: 7, "decimal(10, 2)"),
    "pandas_too_few_arguments": lambda: _pandas(lambda values, weights: 1.0),
    "pandas_iterator_raises": lambda: _pandas_iterator(_failing),
    "pandas_iterator_yields": lambda: _pandas_iterator(lambda batches: (values.sum() for values in batches)),
    "arrow_raises": lambda: _arrow(_failing),
    "arrow_array": lambda: _arrow(lambda values: values),
    "arrow_text": lambda: _arrow(lambda values: "text"),
    "arrow_null": lambda: _arrow(lambda values: None),
    "arrow_int_of_double": lambda: _arrow(lambda values: pa.scalar(1.5), "int"),
    "arrow_overflow": lambda: _arrow(lambda values: pa.scalar(300), "tinyint"),
    "arrow_iterator_raises": lambda: _arrow_iterator(_failing),
    "arrow_iterator_text": lambda: _arrow_iterator(lambda batches: "text"),
}


@pytest.mark.parametrize("result", BAD_RESULTS)
def test_a_result_that_does_not_fit_reads_as_on_stock(sides: Sides, result: str) -> None:
    function = BAD_RESULTS[result]()
    assert_alike(sides, lambda spark: _numbers(spark).groupBy("k").agg(function("id").alias("x")))


def test_what_stock_refuses_is_refused_in_the_same_words(sides: Sides) -> None:
    for functions in (
        (SUMS["pandas"]("v"), F.sum("v")),
        (SUMS["pandas"]("v"), SUMS["arrow"]("v")),
        (SUMS["pandas_iterator"]("v"), SUMS["pandas_iterator"]("id")),
    ):
        query: Query = lambda spark, functions=functions: _numbers(spark).groupBy("k").agg(*functions)  # type: ignore[misc] # noqa: E731
        assert_alike(sides, query)
