# SPDX-License-Identifier: Apache-2.0
"""Python aggregates in realistic queries: keys, sizes of groups, sessions, nested functions.

The matrix covers types, errors and batches (`tests/e2e/kinds/folds.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import Sides
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import SPARK_VERSION, flight_operators

_ROWS = 3_000
# Each call of a function over a Series takes stock a millisecond.
_SINGLE_ROWS = 1_000

# An object, because only a running session could parse the name of a type.
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


def sums() -> dict[str, Function]:
    """Return functions that sum a column, in each kind that this Spark has."""
    found = {"pandas": _pandas(lambda values: values.sum())}
    if SPARK_VERSION >= (4, 1):
        found["arrow"] = _arrow(pc.sum)
    if SPARK_VERSION >= (4, 2):
        found["pandas_iterator"] = _pandas_iterator(_sum_of_batches)
        found["arrow_iterator"] = _arrow_iterator(_sum_of_arrays)
    return found


SUMS = sums()
weighted = _pandas(lambda values, weights: (values * weights).sum())
arrow_weighted = _arrow(lambda values, weights: pc.sum(pc.multiply(values, weights)))


def _numbers(spark: SparkSession, groups: int = 500, partitions: int = 3) -> DataFrame:
    return spark.range(0, _ROWS, 1, partitions).select(
        "id",
        (F.col("id") * 7919 % groups).alias("k"),
        F.when(F.col("id") % 7 != 0, F.col("id") / 3).alias("v"),
        F.concat(F.lit("row "), F.col("id") % 10).alias("text"),
    )


def _groups_of(count: int) -> Callable[[SparkSession, Function], DataFrame]:
    return lambda spark, total: _numbers(spark, count).groupBy("k").agg(total("v"))


def _groups_of_one_row(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark, _ROWS).where(f"id < {_SINGLE_ROWS}").groupBy("k").agg(total("v"))


def _all_rows(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark).agg(total("v"))


def _no_rows(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark).where("id < 0").agg(total("v"))


def _no_groups(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark).where("id < 0").groupBy("k").agg(total("v"))


def _empty_partitions(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark, partitions=9).where("id % 1000 = 3").groupBy("k").agg(total("v"))


def _several_keys(spark: SparkSession, total: Function) -> DataFrame:
    groups = _numbers(spark).groupBy("text", (F.col("k") % 3).alias("third"))
    return groups.agg((total("v") * 2 + F.col("third")).alias("x")).select("x", F.upper("text"), "third")


def _having_sort_and_join(spark: SparkSession, total: Function) -> DataFrame:
    totals = _numbers(spark).groupBy("k").agg(total("v").alias("x")).where("x > 1000").orderBy(F.desc("x"))
    return totals.join(_numbers(spark, 50), "k").orderBy("id").limit(300)


def _argument_of_a_function(spark: SparkSession, total: Function) -> DataFrame:
    doubled = F.udf(lambda value: value * 2, "bigint", useArrow=False)
    return _numbers(spark).groupBy("k").agg(total(doubled("id")))


def _key_of_a_function(spark: SparkSession, total: Function) -> DataFrame:
    third = F.udf(lambda value: value % 3, "bigint", useArrow=False)
    return _numbers(spark).groupBy(third("id").alias("t")).agg(total("v"))


def _pivot(spark: SparkSession, total: Function) -> DataFrame:
    return _numbers(spark).groupBy("k").agg(total("v").alias("x")).groupBy().pivot("k", [1, 2]).sum("x")


def _sessions(spark: SparkSession, total: Function) -> DataFrame:
    seconds = F.floor(F.col("id") / 40) * 600 + F.col("id") % 40
    frame = _numbers(spark).withColumn("time", F.timestamp_seconds(seconds))
    return frame.groupBy(F.session_window("time", "5 minutes").alias("w"), "text").agg(total("v"))


def _registered_for_sql(spark: SparkSession, total: Function) -> DataFrame:
    spark.udf.register("total_in_sql", total)
    _numbers(spark).createOrReplaceTempView("numbers_to_fold")
    return spark.sql("SELECT k, total_in_sql(v) AS x FROM numbers_to_fold GROUP BY k HAVING total_in_sql(v) > 10")


# Queries, and how many rows each gives.
QUERIES: dict[str, tuple[Callable[[SparkSession, Function], DataFrame], range]] = {
    "few_large_groups": (_groups_of(3), range(3, 4)),
    "groups": (_groups_of(500), range(500, 501)),
    "groups_of_one_row": (_groups_of_one_row, range(_SINGLE_ROWS, _SINGLE_ROWS + 1)),
    "all_rows": (_all_rows, range(1, 2)),
    "no_rows": (_no_rows, range(2)),
    "no_groups": (_no_groups, range(1)),
    "empty_partitions": (_empty_partitions, range(1, 2)),
    "several_keys": (_several_keys, range(30, 31)),
    "having_sort_and_join": (_having_sort_and_join, range(1, 301)),
    "argument_of_a_function": (_argument_of_a_function, range(500, 501)),
    "key_of_a_function": (_key_of_a_function, range(3, 4)),
    "pivot": (_pivot, range(1, 2)),
    "sessions": (_sessions, range(500, _ROWS)),
    "registered_for_sql": (_registered_for_sql, range(1, 501)),
}


def _pairs() -> Iterator[tuple[str, str]]:
    """Yield each query with one kind, in rotation, and each kind with each number of groups."""
    kinds = itertools.cycle(SUMS)
    for query in QUERIES:
        yield from ((kind, query) for kind in (SUMS if "groups" in query else [next(kinds)]))


@pytest.mark.parametrize(("kind", "query"), list(_pairs()))
def test_an_aggregate_gives_what_it_gives_on_stock(sides: Sides, kind: str, query: str) -> None:
    ask, rows = QUERIES[query]
    assert len(sides.assert_same(lambda spark: ask(spark, SUMS[kind])).rows) in rows


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
    if key == "collated":
        needs_spark((4, 0), "collations")
    total = SUMS["pandas"]
    sides.assert_same(lambda spark: _numbers(spark).groupBy(F.expr(KEYS[key]).alias("key")).agg(total("v")))


@pytest.mark.parametrize("kind", SUMS)
def test_a_group_is_larger_than_a_request(sides: Sides, kind: str) -> None:
    confs = {"spark.updraft.udf.batchBytes": "4k", "spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    sides.assert_same(lambda spark: _groups_of(2)(spark, SUMS[kind]), confs=confs)


@pytest.mark.parametrize("make", [_pandas_iterator, _arrow_iterator])
def test_an_iterator_gets_all_batches_of_a_group(sides: Sides, make: Callable[..., Function]) -> None:
    sizes = make(_sizes, _TEXT)
    confs = {"spark.sql.execution.arrow.maxRecordsPerBatch": "7", "spark.updraft.udf.batchBytes": "16k"}
    sides.assert_same(lambda spark: _numbers(spark, 3).groupBy("k").agg(sizes("v")), confs=confs)


def test_an_iterator_may_be_left_unread(sides: Sides) -> None:
    first = _pandas_iterator(lambda batches: next(batches).iloc[0])
    sides.assert_same(
        lambda spark: _numbers(spark, 40).groupBy("k").agg(first("id")),
        confs={"spark.sql.execution.arrow.maxRecordsPerBatch": "50"},
    )


def test_several_aggregates_share_one_exchange(sides: Sides) -> None:
    total = SUMS["pandas"]
    answer = sides.assert_same(
        lambda spark: (
            _numbers(spark)
            .groupBy("k")
            .agg(
                total("v").alias("a"),
                total("id").alias("b"),
                weighted("v", "id").alias("c"),
                weighted(weights=F.col("v"), values=F.col("id") + 1).alias("d"),
                weighted("v", weights=F.lit(2.5)).alias("e"),
                weighted("id", "id").alias("f"),
            )
        )
    )
    plan = answer.plan.split("== Initial Plan ==")[0]
    assert sides.compares_stock_with_itself or flight_operators(plan) == ["FlightAggregate"]


def test_arrow_aggregates_take_named_arguments(sides: Sides) -> None:
    named = arrow_weighted(weights=F.col("id"), values=F.col("v"))
    sides.assert_same(lambda spark: _numbers(spark).groupBy("k").agg(named, arrow_weighted("v", "v")))


def test_a_nondeterministic_aggregate_runs_on_the_pool(sides: Sides) -> None:
    function = _pandas(lambda values: values.max()).asNondeterministic()  # type: ignore[attr-defined]
    sides.assert_same(lambda spark: _numbers(spark).groupBy("k").agg(function("id").alias("x")))


MIXES = [("pandas", None), ("pandas", "arrow"), ("pandas_iterator", "pandas_iterator")]


@pytest.mark.parametrize("kinds", [mix for mix in MIXES if {*mix} <= {*SUMS, None}])
def test_what_stock_refuses_is_refused_in_the_same_words(sides: Sides, kinds: tuple[str, str | None]) -> None:
    columns = [SUMS[kind](name) if kind else F.sum(name) for kind, name in zip(kinds, ("v", "id"), strict=True)]
    sides.assert_refused_alike(lambda spark: _numbers(spark).groupBy("k").agg(*columns))
