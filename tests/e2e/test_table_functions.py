# SPDX-License-Identifier: Apache-2.0
"""Table functions in every call that SQL and DataFrames allow give the same on a pool as on stock PySpark.

The matrix covers types, batches, and errors of `eval` (`tests/e2e/kinds/table_functions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e import handlers
from tests.e2e.errors import told
from tests.e2e.sides import Query, Sides
from tests.support.kinds_of_spark import needs_spark, needs_spark_for

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LEGACY = {"spark.sql.legacy.execution.pythonUDTF.pandas.conversion.enabled": "true"}


@dataclass(frozen=True)
class Kind:
    """Way in which a class becomes a table function."""

    name: str
    arrow: bool
    confs: Mapping[str, str]


_BY_DEFAULT = [Kind("pickled", False, {}), Kind("arrow", True, {})]
_BY_PANDAS = Kind("arrow_pandas", True, _LEGACY)
every_kind = pytest.mark.parametrize("kind", [*_BY_DEFAULT, _BY_PANDAS], ids=lambda kind: kind.name)

SCHEMA = "number bigint, text string"
CALLS = {
    "without_a_table": (handlers.Repeat, "SELECT * FROM f(3)"),
    "lateral": (handlers.Repeat, "SELECT * FROM numbers, LATERAL f(id)"),
    "lateral_with_other_columns": (handlers.Repeat, "SELECT k, s, number FROM numbers, LATERAL f(id + 1)"),
    "lateral_that_selects_results_only": (handlers.Repeat, "SELECT text FROM numbers, LATERAL f(id)"),
    "lateral_twice": (handlers.Repeat, "SELECT * FROM numbers, LATERAL f(id) a, LATERAL f(a.number + 1) b"),
    "lateral_terminate": (handlers.Count, "SELECT * FROM numbers, LATERAL f(id)"),
    "lateral_with_an_argument_twice": (handlers.Count, "SELECT * FROM numbers, LATERAL f(id, id, k)"),
    "lateral_without_arguments": (handlers.NoArguments, "SELECT * FROM numbers, LATERAL f()"),
    "no_arguments": (handlers.NoArguments, "SELECT * FROM f()"),
    "named_arguments": (handlers.Named, "SELECT * FROM numbers, LATERAL f(factor => k, number => id)"),
    "default_arguments": (handlers.Named, "SELECT * FROM numbers, LATERAL f(id)"),
    "other_named_arguments": (handlers.Named, "SELECT * FROM numbers, LATERAL f(id, b => s, a => 1)"),
    "nulls": (handlers.Nulls, "SELECT * FROM numbers, LATERAL f(id)"),
    "nothing": (handlers.NothingAtAll, "SELECT * FROM numbers, LATERAL f(id)"),
    "table": (handlers.EchoAndEnd, "SELECT * FROM f(TABLE(numbers))"),
    "table_partitioned": (handlers.EchoAndEnd, "SELECT * FROM f(TABLE(numbers) PARTITION BY k)"),
    "table_partitioned_by_an_expression": (handlers.Count, "SELECT * FROM f(TABLE(numbers) PARTITION BY (k + 1, s))"),
    "table_ordered": (handlers.EchoAndEnd, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id DESC)"),
    "table_in_one_partition": (
        handlers.EchoAndEnd,
        "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION ORDER BY id DESC)",
    ),
    "table_skipped": (handlers.SkipAfterThree, "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION ORDER BY id)"),
    "table_partitions_skipped": (handlers.SkipAfterThree, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id)"),
    "table_with_a_filter_above": (handlers.EchoAndEnd, "SELECT number + 1 FROM f(TABLE(numbers)) WHERE number % 2 = 0"),
    "many_rows_of_one": (handlers.Many, "SELECT count(*), sum(number), max(text) FROM f(1)"),
    "many_rows_of_each": (
        handlers.Many,
        "SELECT id, count(*), sum(number), min(k) FROM few, LATERAL f(id) GROUP BY id",
    ),
}


def _frame(spark: SparkSession, function: Any, statement: str) -> DataFrame:
    spark.udtf.register("f", function)
    numbers = spark.range(0, 40, 1, 2).selectExpr("id", "id % 3 AS k", "IF(id % 5 = 0, NULL, 's' || id) AS s")
    numbers.createOrReplaceTempView("numbers")
    numbers.where("id < 3").createOrReplaceTempView("few")
    return spark.sql(statement)


def _registered(kind: Kind, handler: type, statement: str, schema: str | None = SCHEMA) -> Query:
    return lambda spark: _frame(spark, F.udtf(handler, returnType=schema, useArrow=kind.arrow), statement)


def _native(handler: type, statement: str) -> Query:
    return lambda spark: _frame(spark, F.arrow_udtf(handler, returnType=SCHEMA), statement)


def _calls() -> Iterator[Any]:
    """Yield all calls, but only a few of Arrow's legacy way, which makes rows differently but calls functions alike."""
    few = ("lateral_with_other_columns", "lateral_terminate", "nulls", "table_partitioned", "many_rows_of_each")
    for kind in (*_BY_DEFAULT, _BY_PANDAS):
        for call in few if kind is _BY_PANDAS else CALLS:
            yield pytest.param(kind, call, id=f"{kind.name}-{call}")


@pytest.mark.parametrize(("kind", "call"), list(_calls()))
def test_a_table_function_gives_what_it_gives_on_stock(sides: Sides, kind: Kind, call: str) -> None:
    needs_spark_for(CALLS[call][1])
    rows = sides.assert_same(_registered(kind, *CALLS[call]), confs=kind.confs).rows
    assert bool(rows) is (call != "nothing")


@pytest.mark.parametrize("max_records", ["1", "7"])
@every_kind
def test_batches_of_any_size_join_each_row_to_its_own_results(sides: Sides, kind: Kind, max_records: str) -> None:
    query = _registered(kind, *CALLS["lateral_with_other_columns"])
    sides.assert_same(query, confs={**kind.confs, _MAX_RECORDS: max_records})


@pytest.mark.parametrize("kind", _BY_DEFAULT, ids=lambda kind: kind.name)
def test_terminate_answers_for_a_partition_without_rows_where_stock_fails(sides: Sides, kind: Kind) -> None:
    # One of the table's two partitions has a row. Stock fails because it joins results to the last row of a partition.
    query = _registered(kind, handlers.Count, "SELECT * FROM f(TABLE(SELECT * FROM numbers WHERE id = 1))")
    stock, ours = sides.stock(query), sides.updraft(query)
    assert "NullPointerException" in str(stock.error)
    sides.assert_ran_on_the_pool(ours)
    assert sides.compares_stock_with_itself or ours.rows == [(1, "rows"), (0, "rows")]


@pytest.mark.parametrize("kind", _BY_DEFAULT, ids=lambda kind: kind.name)
def test_an_output_larger_than_a_message_arrives(sides: Sides, kind: Kind) -> None:
    # Stock is too slow for this size, and the right answer is known.
    statement = "SELECT number, length(text), min(substr(text, 1, 1)) FROM f(1L) GROUP BY ALL ORDER BY 1"
    answer = sides.updraft(_registered(kind, handlers.Wide, statement))
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert answer.rows == [(index, 1 << 20, chr(97 + index % 26)) for index in range(80)]


@every_kind
def test_what_was_analyzed_reaches_the_constructor(sides: Sides, kind: Kind) -> None:
    needs_spark((4, 0), "analyze of table functions")
    statement = "SELECT * FROM f(TABLE(numbers), 'sum') ORDER BY total"
    answer = sides.assert_same(_registered(kind, handlers.Analyzed, statement, None), confs=kind.confs)
    assert [row[0] for row in answer.rows] == ["sum"] * 3


@every_kind
def test_the_dataframe_api_calls_the_same(sides: Sides, kind: Kind) -> None:
    def both(spark: SparkSession) -> DataFrame:
        repeat = F.udtf(handlers.Repeat, returnType=SCHEMA, useArrow=kind.arrow)
        count = F.udtf(handlers.Count, returnType=SCHEMA, useArrow=kind.arrow)
        lateral = spark.range(0, 20, 1, 2).lateralJoin(repeat(F.col("id").outer())).drop("id")
        return lateral.union(count(spark.range(0, 20, 1, 2).asTable().partitionBy(F.col("id") % 2)))

    sides.assert_same(both, confs=kind.confs)


class Mirror:
    def eval(self, point: Any) -> Iterator[tuple[Any, str]]:
        yield type(point)(point.y, point.x), repr(point)


@every_kind
def test_user_defined_types_come_and_go(sides: Sides, kind: Kind) -> None:
    needs_spark((4, 0), "user-defined type that a worker on NumPy 2 can import")
    from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

    def query(spark: SparkSession) -> DataFrame:
        schema = T.StructType().add("p", ExamplePointUDT()).add("seen", "string")
        points = [(ExamplePoint(1.0, 2.0),), (ExamplePoint(-0.5, 0.0),)]
        frame = spark.createDataFrame(points, T.StructType().add("point", ExamplePointUDT()))
        function = F.udtf(Mirror, returnType=schema, useArrow=kind.arrow)
        return frame.lateralJoin(function(F.col("point").outer()))

    stock, ours = sides.stock(query, kind.confs), sides.updraft(query, confs=kind.confs)
    assert type(ours.error) is type(stock.error), ours.error
    assert [str(row) for row in ours.rows] == [str(row) for row in stock.rows]


@every_kind
def test_a_limit_ends_a_table_function_that_would_go_on(sides: Sides, kind: Kind) -> None:
    query = _registered(kind, handlers.LateError, "SELECT * FROM numbers, LATERAL f(id) LIMIT 3")
    assert len(sides.assert_same(query, confs=kind.confs).rows) == 3


NATIVE_CALLS = {
    "table": (handlers.AddOne, "SELECT * FROM f(TABLE(numbers))"),
    "table_partitioned": (handlers.BatchSizes, "SELECT * FROM f(TABLE(numbers) PARTITION BY k)"),
    "table_ordered": (handlers.AddOne, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id DESC)"),
    "table_in_one_partition": (handlers.BatchSizes, "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION)"),
    "scalars": (handlers.OfScalars, "SELECT * FROM f(1L, 'one')"),
    "named_scalars": (handlers.OfScalars, "SELECT * FROM f(text => 'one', number => 1L)"),
    "table_nothing_for_some": (handlers.Sparse, "SELECT * FROM f(TABLE(numbers))"),
    "many_batches": (handlers.ManyBatches, "SELECT count(*), sum(number), max(text) FROM f(TABLE(numbers))"),
}


def _native_calls() -> Iterator[Any]:
    """Yield each call with batches of either size; the outputs of `many_batches` do not depend on the size."""
    for call in NATIVE_CALLS:
        for max_records in ("10000",) if call == "many_batches" else ("7", "10000"):
            yield pytest.param(call, max_records, id=f"{call}-{max_records}")


@pytest.mark.parametrize(("call", "max_records"), list(_native_calls()))
def test_an_arrow_table_function_gives_what_it_gives_on_stock(sides: Sides, call: str, max_records: str) -> None:
    needs_spark((4, 1), "arrow_udtf")
    assert sides.assert_same(_native(*NATIVE_CALLS[call]), confs={_MAX_RECORDS: max_records}).rows


def _raising(method: str, error: BaseException) -> type:
    def fail_on_purpose(self: Any, *_: Any) -> Any:
        raise error

    def end(self: Any) -> Iterator[tuple[int, str]]:
        yield 0, ""

    methods = {"eval": lambda self, *_: iter([(1, "x")]), "terminate": end, method: fail_on_purpose}
    return type("Raising", (), methods)


def _giving(*rows: Any) -> type:
    return type("Giving", (), {"eval": lambda self, *_: iter(rows)})


class NotIterable:
    def eval(self, *_: Any) -> Any:
        return 3


class WrongSignature:
    def eval(self) -> Iterator[tuple[int, str]]:
        yield 1, ""


class WantsAnalysis:
    def __init__(self, analyzed: Any) -> None:
        pass

    def eval(self, *_: Any) -> None:
        pass


ERRORS: dict[str, type] = {
    "raises_in_init": _raising("__init__", ValueError("in init")),
    "raises_in_terminate": _raising("terminate", KeyError("in terminate")),
    "too_few_columns": _giving(()),
    "not_iterable": NotIterable,
    "wrong_signature": WrongSignature,
    "constructor_without_analysis": WantsAnalysis,
}
NATIVE_ERRORS: dict[str, type] = {
    "raises_in_init": _raising("__init__", ValueError("in init")),
    "too_few_columns": _giving(pa.table({"number": [1]})),
    "not_iterable": NotIterable,
}


def _assert_fails_alike(sides: Sides, query: Query, confs: Mapping[str, str]) -> None:
    stock, ours = sides.stock(query, confs), sides.updraft(query, confs=confs)
    assert type(ours.error) is type(stock.error), ours.error
    sides.assert_ran_on_the_pool(ours)
    assert ours.rows == stock.rows
    if isinstance(stock.error, PythonException):
        assert told(ours.error) == told(stock.error)


@every_kind
@pytest.mark.parametrize("error", ERRORS)
def test_a_table_function_fails_as_on_stock(sides: Sides, kind: Kind, error: str) -> None:
    _assert_fails_alike(sides, _registered(kind, ERRORS[error], CALLS["lateral"][1]), kind.confs)


@pytest.mark.parametrize("error", NATIVE_ERRORS)
def test_an_arrow_table_function_fails_as_on_stock(sides: Sides, error: str) -> None:
    needs_spark((4, 1), "arrow_udtf")
    _assert_fails_alike(sides, _native(NATIVE_ERRORS[error], "SELECT * FROM f(TABLE(numbers))"), {})


@every_kind
def test_a_null_where_none_is_declared_fails_as_on_stock(sides: Sides, kind: Kind) -> None:
    schema = T.StructType([T.StructField("number", T.LongType(), False), T.StructField("text", T.StringType())])
    _assert_fails_alike(
        sides, lambda spark: F.udtf(_giving((None, "x")), returnType=schema, useArrow=kind.arrow)(), kind.confs
    )
