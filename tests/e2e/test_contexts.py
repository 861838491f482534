# SPDX-License-Identifier: Apache-2.0
"""Places where a query may call a function: filters, joins, grouping, having, sorting, conditions, subqueries, streams.

`test_plans.py` covers the operators themselves; aggregates, windows, groups and table functions are combined with other
functions in their own files.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.kinds import KINDS
from tests.e2e.kinds.seen import same
from tests.e2e.sides import Sides
from tests.support.spark import ENABLED, ENDPOINT, SPARK_VERSION, flight_operators, runtime_confs, stock_operators

_ROWS = 40
_NUMBER, _TRUTH, _TEXT = T.LongType(), T.BooleanType(), T.StringType()

Function = Callable[[Any], Column]


def _over_series(function: Callable[[Any], Any]) -> Any:
    return lambda values: values.map(function)


def _over_array(function: Callable[[Any], Any]) -> Any:
    return lambda values: pa.array([function(value) for value in values.to_pylist()])


def _over_batches(function: Callable[[Any], Any]) -> Any:
    def over_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield function(batch)

    return over_batches


# Makers of a function of one value, in each kind.
MAKERS: dict[str, Callable[[Callable[[Any], Any], T.DataType], Function]] = {
    "udf_pickled": lambda function, result: F.udf(function, result, useArrow=False),
    "udf_arrow": lambda function, result: F.udf(function, result, useArrow=True),
    "pandas_udf": lambda function, result: F.pandas_udf(_over_series(function), result, F.PandasUDFType.SCALAR),
    "pandas_udf_iterator": lambda function, result: F.pandas_udf(
        _over_batches(_over_series(function)), result, F.PandasUDFType.SCALAR_ITER
    ),
}
if SPARK_VERSION >= (4, 1):
    MAKERS |= {
        "arrow_udf": lambda function, result: F.arrow_udf(_over_array(function), result, F.ArrowUDFType.SCALAR),
        "arrow_udf_iterator": lambda function, result: F.arrow_udf(
            _over_batches(_over_array(function)), result, F.ArrowUDFType.SCALAR_ITER
        ),
    }


class Functions:
    """Functions of a kind that the contexts call."""

    def __init__(self, kind: str):
        self.kind = kind
        self.next = MAKERS[kind](lambda number: number + 1, _NUMBER)
        self.odd = MAKERS[kind](lambda number: number % 2 == 1, _TRUTH)
        self.label = MAKERS[kind](lambda number: f"label {number % 3}", _TEXT)


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, 2).select(
        "id",
        (F.col("id") % 4).alias("k"),
        F.array("id", F.col("id") + 7).alias("items"),
        F.struct("id", F.lit("x").alias("s")).alias("pair"),
    )


def _filter(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).where(f.odd("id") & (f.next("id") > 10) | ~f.odd("k"))


def _join_on_equal_results(spark: SparkSession, f: Functions) -> DataFrame:
    left, right = _numbers(spark).alias("l"), _numbers(spark).alias("r")
    return left.join(right, f.next("l.id") == f.next("r.k")).select("l.id", "r.id").orderBy("l.id", "r.id")


def _join_on_a_condition(spark: SparkSession, f: Functions) -> DataFrame:
    left, right = _numbers(spark).alias("l"), _numbers(spark).alias("r")
    return left.join(right, (F.col("l.id") == F.col("r.k")) & f.odd(F.col("r.id"))).select("l.id", "r.id")


def _outer_join(spark: SparkSession, f: Functions) -> DataFrame:
    right = _numbers(spark).select(f.next("id").alias("k"), f.label("id").alias("label"))
    return _numbers(spark).join(right, "k", "left").orderBy("id", "label")


def _group_by(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).groupBy(f.label("id").alias("label")).agg(F.sum("id"), F.sum(f.next("id"))).orderBy("label")


def _over_an_aggregate(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).groupBy("k").agg(f.next(F.sum("id")).alias("next")).orderBy("k")


def _having(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).groupBy(f.label("id").alias("label")).agg(F.count("*").alias("n")).where(f.odd("n"))


def _grouping_sets(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).rollup(f.label("id").alias("label"), "k").count().orderBy("label", "k")


def _sort(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).select("id").orderBy(f.label("id").desc(), f.next(-F.col("id")))


def _case_when(spark: SparkSession, f: Functions) -> DataFrame:
    chosen = F.when(f.odd("id"), f.next("id")).when(F.col("k") == 2, f.next("k")).otherwise(F.lit(0))
    return _numbers(spark).select("id", chosen, F.coalesce(F.nullif(f.label("id"), F.lit("label 1")), f.label("k")))


def _higher_order(spark: SparkSession, f: Functions) -> DataFrame:
    total = F.aggregate("items", F.lit(0).cast("bigint"), lambda sum_so_far, item: sum_so_far + item)
    return _numbers(spark).select(
        f.next(total).alias("total"),
        F.transform(F.array(f.next("id"), "k"), lambda item: item * 2).alias("doubled"),
        F.exists(F.array(f.next("k")), lambda item: item == 1).alias("any"),
    )


def _explode(spark: SparkSession, f: Functions) -> DataFrame:
    exploded = _numbers(spark).select("id", F.explode(F.array(f.next("id"), "k")).alias("item"))
    return exploded.select("id", f.next("item"))


def _nested(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).select(f.next(f.next(f.next("id"))), f.label(f.next("k")), F.struct(f.next("pair.id")))


def _distinct_union(spark: SparkSession, f: Functions) -> DataFrame:
    labels = _numbers(spark).select(f.label("id").alias("label"))
    return labels.union(_numbers(spark).select(f.label("k"))).distinct().orderBy("label")


def _beside_a_window(spark: SparkSession, f: Functions) -> DataFrame:
    window = Window.partitionBy(f.label("id")).orderBy(f.next("id"))
    return _numbers(spark).select("id", F.row_number().over(window), F.sum(f.next("k")).over(window)).orderBy("id")


def _pivot(spark: SparkSession, f: Functions) -> DataFrame:
    labels = _numbers(spark).select("k", f.label("id").alias("label"), f.next("id").alias("next"))
    return labels.groupBy("k").pivot("label", ["label 0", "label 1"]).sum("next").orderBy("k")


def _limit_and_offset(spark: SparkSession, f: Functions) -> DataFrame:
    return _numbers(spark).select("id", f.next("id").alias("next")).orderBy("next").offset(5).limit(7)


def _subqueries(spark: SparkSession, f: Functions) -> DataFrame:
    for name in ("next", "odd", "label"):
        spark.udf.register(f"{name}_in_sql", getattr(f, name))
    _numbers(spark).createOrReplaceTempView("numbers_of_contexts")
    return spark.sql(
        "WITH odds AS (SELECT id, next_in_sql(id) AS next FROM numbers_of_contexts WHERE odd_in_sql(id))"
        " SELECT id, next, label_in_sql(next) AS label, upper(label) FROM odds"
        " WHERE id IN (SELECT next_in_sql(id) FROM numbers_of_contexts)"
        " AND next < (SELECT max(next_in_sql(id)) FROM numbers_of_contexts) ORDER BY next DESC"
    )


CONTEXTS: dict[str, Callable[[SparkSession, Functions], DataFrame]] = {
    context.__name__.strip("_"): context
    for context in (
        _filter,
        _join_on_equal_results,
        _join_on_a_condition,
        _outer_join,
        _group_by,
        _over_an_aggregate,
        _having,
        _grouping_sets,
        _sort,
        _case_when,
        _higher_order,
        _explode,
        _nested,
        _distinct_union,
        _beside_a_window,
        _pivot,
        _limit_and_offset,
        _subqueries,
    )
}


def _pairs() -> Iterator[tuple[str, str]]:
    """Yield each context with BatchEvalPython and ArrowEvalPython, rotating the kinds of the latter.

    Spark takes functions out of a context before it looks further at their kind.
    """
    arrow_kinds = itertools.cycle(kind for kind in MAKERS if kind != "udf_pickled")
    for context in CONTEXTS:
        yield "udf_pickled", context
        yield next(arrow_kinds), context


@pytest.mark.parametrize(("kind", "context"), list(_pairs()))
def test_a_query_may_call_a_function_wherever_stock_lets_it(sides: Sides, kind: str, context: str) -> None:
    functions = Functions(kind)
    assert sides.assert_same(lambda spark: CONTEXTS[context](spark, functions)).rows


@pytest.mark.parametrize("kind", MAKERS)
def test_a_function_inside_a_lambda_is_refused_in_stocks_words(sides: Sides, kind: str) -> None:
    function = Functions(kind).next
    sides.assert_refused_alike(lambda spark: _numbers(spark).select(F.transform("items", lambda item: function(item))))


def test_a_stream_may_call_every_kind_of_function_that_has_no_state(
    sides: Sides, spark: SparkSession, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    spark.range(0, _ROWS, 1, 1).select("id", (F.col("id") % 4).alias("k")).write.parquet(source)
    kinds = [kind for kind in KINDS if not kind.over_groups]

    def results(rows: DataFrame) -> DataFrame:
        each = [
            kind.apply(rows, kind.function(same)).select(F.lit(kind.name), F.col("x").cast("string")) for kind in kinds
        ]
        return functools.reduce(DataFrame.union, each)

    stock = sides.stock(lambda spark: results(spark.read.schema("id bigint, k bigint").parquet(source)))
    assert stock.error is None
    with runtime_confs(spark, {} if sides.compares_stock_with_itself else _on_the_pool(sides)):
        frame = results(spark.readStream.schema("id bigint, k bigint").parquet(source))
        writer = frame.writeStream.format("memory").queryName("of_every_kind").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(250), "the stream does not end"
        plan = str(query._jsq.explainInternal(False))
    assert sides.compares_stock_with_itself or (len(flight_operators(plan)) == len(kinds) and not stock_operators(plan))
    assert sorted(map(tuple, spark.table("of_every_kind").collect())) == sorted(stock.rows)


def _on_the_pool(sides: Sides) -> dict[str, str]:
    return {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}
