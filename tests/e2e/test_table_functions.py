# SPDX-License-Identifier: Apache-2.0
"""Table functions of every kind and in every call give on a pool what they give on stock PySpark, errors included.

Types: numbers, strings, nulls and a user-defined type; the matrix of `test_types` does not have these kinds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.functions import AnalyzeArgument, AnalyzeResult, PartitioningColumn, SkipRestOfInputTableException

from tests.e2e.sides import Query, Sides

_LEGACY = {"spark.sql.legacy.execution.pythonUDTF.pandas.conversion.enabled": "true"}


@dataclass(frozen=True)
class Kind:
    """How a class becomes a table function."""

    name: str
    arrow: bool
    confs: Mapping[str, str]


KINDS = [Kind("pickled", False, {}), Kind("arrow", True, {}), Kind("arrow_pandas", True, _LEGACY)]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


class Repeat:
    """As many rows as the number says."""

    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(number % 4):
            yield number, f"{number}.{index}"


class Count:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, *_: Any) -> None:
        self._rows += 1

    def terminate(self) -> Iterator[tuple[int, str]]:
        yield self._rows, "rows"


class Echo:
    def eval(self, row: Row) -> Iterator[tuple[int, str]]:
        yield row["id"], repr(row)


class EchoAndEnd(Echo):
    def terminate(self) -> Iterator[tuple[int, str]]:
        yield -1, "end"


class SkipAfterThree:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, row: Any) -> Iterator[tuple[int, str]]:
        self._rows += 1
        if self._rows > 3:
            raise SkipRestOfInputTableException("three are enough")
        yield self._rows, repr(row)

    def terminate(self) -> Iterator[tuple[int, str]]:
        yield -self._rows, "skipped"


class NoArguments:
    def eval(self) -> Iterator[tuple[int, str | None]]:
        yield 1, "one"
        yield 2, None


class Named:
    def eval(self, number: int, factor: int = 2, **rest: Any) -> Iterator[tuple[int, str]]:
        yield number * factor, repr(sorted(rest.items()))


class Nulls:
    def eval(self, number: int) -> Iterator[tuple[int | None, str | None] | None]:
        yield None, None
        yield number, None


class NothingAtAll:
    def eval(self, number: int) -> None:
        return None


class Many:
    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(30_000):
            yield index, "x" * (index % 50)


class Wide:
    """More bytes in one output than a reply may have."""

    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(80):
            yield index, chr(97 + index % 26) * (1 << 20)


class Analyzed:
    """The schema, the partitioning and what the constructor gets come from `analyze`."""

    def __init__(self, analyzed: Any) -> None:
        self._label = analyzed.label
        self._total = 0

    @staticmethod
    def analyze(table: AnalyzeArgument, label: AnalyzeArgument) -> AnalyzeResult:
        return _Labelled(
            schema=T.StructType().add("label", T.StringType()).add("total", T.LongType()),
            partitionBy=[PartitioningColumn("k")],
            label=label.value,
        )

    def eval(self, row: Row, label: str) -> None:
        self._total += row["id"]

    def terminate(self) -> Iterator[tuple[str, int]]:
        yield self._label, self._total


@dataclass
class _Labelled(AnalyzeResult):  # type: ignore[misc]
    label: str = ""


SCHEMA = "number bigint, text string"
CALLS = {
    "without_a_table": (Repeat, "SELECT * FROM f(3)"),
    "lateral": (Repeat, "SELECT * FROM numbers, LATERAL f(id)"),
    "lateral_with_other_columns": (Repeat, "SELECT k, s, number FROM numbers, LATERAL f(id + 1)"),
    "lateral_that_selects_results_only": (Repeat, "SELECT text FROM numbers, LATERAL f(id)"),
    "lateral_twice": (Repeat, "SELECT * FROM numbers, LATERAL f(id) a, LATERAL f(a.number + 1) b"),
    "lateral_terminate": (Count, "SELECT * FROM numbers, LATERAL f(id)"),
    "lateral_with_an_argument_twice": (Count, "SELECT * FROM numbers, LATERAL f(id, id, k)"),
    "lateral_without_arguments": (NoArguments, "SELECT * FROM numbers, LATERAL f()"),
    "no_arguments": (NoArguments, "SELECT * FROM f()"),
    "named_arguments": (Named, "SELECT * FROM numbers, LATERAL f(factor => k, number => id)"),
    "default_arguments": (Named, "SELECT * FROM numbers, LATERAL f(id)"),
    "other_named_arguments": (Named, "SELECT * FROM numbers, LATERAL f(id, b => s, a => 1)"),
    "nulls": (Nulls, "SELECT * FROM numbers, LATERAL f(id)"),
    "nothing": (NothingAtAll, "SELECT * FROM numbers, LATERAL f(id)"),
    "table": (EchoAndEnd, "SELECT * FROM f(TABLE(numbers))"),
    "table_partitioned": (EchoAndEnd, "SELECT * FROM f(TABLE(numbers) PARTITION BY k)"),
    "table_partitioned_by_an_expression": (Count, "SELECT * FROM f(TABLE(numbers) PARTITION BY (k + 1, s))"),
    "table_ordered": (EchoAndEnd, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id DESC)"),
    "table_in_one_partition": (EchoAndEnd, "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION ORDER BY id DESC)"),
    "table_skipped": (SkipAfterThree, "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION ORDER BY id)"),
    "table_partitions_skipped": (SkipAfterThree, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id)"),
    "table_with_a_filter_above": (EchoAndEnd, "SELECT number + 1 FROM f(TABLE(numbers)) WHERE number % 2 = 0"),
    "many_rows_of_one": (Many, "SELECT count(*), sum(number), max(text) FROM f(1)"),
    "many_rows_of_each": (Many, "SELECT id, count(*), sum(number), min(k) FROM few, LATERAL f(id) GROUP BY id"),
}


def _registered(kind: Kind, handler: type, statement: str, schema: str | None = SCHEMA) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        spark.udtf.register("f", F.udtf(handler, returnType=schema, useArrow=kind.arrow))
        numbers = spark.range(0, 40, 1, 2).selectExpr("id", "id % 3 AS k", "IF(id % 5 = 0, NULL, 's' || id) AS s")
        numbers.createOrReplaceTempView("numbers")
        numbers.where("id < 3").createOrReplaceTempView("few")
        return spark.sql(statement)

    return query


@every_kind
@pytest.mark.parametrize("call", CALLS)
def test_a_table_function_gives_what_it_gives_on_stock(sides: Sides, kind: Kind, call: str) -> None:
    handler, statement = CALLS[call]
    answer = sides.assert_same(_registered(kind, handler, statement), confs=kind.confs)
    assert bool(answer.rows) is (call != "nothing")


@every_kind
def test_batches_of_any_size_join_each_row_to_its_own_results(sides: Sides, kind: Kind) -> None:
    for rows in ("1", "7"):
        confs = {**kind.confs, "spark.sql.execution.arrow.maxRecordsPerBatch": rows}
        sides.assert_same(_registered(kind, Repeat, CALLS["lateral_with_other_columns"][1]), confs=confs)


@every_kind
def test_an_output_larger_than_a_message_arrives(sides: Sides, kind: Kind) -> None:
    statement = "SELECT id, number, length(text), min(substr(text, 1, 1)) FROM few, LATERAL f(id) GROUP BY ALL"
    answer = sides.assert_same(_registered(kind, Wide, f"SELECT * FROM ({statement}) ORDER BY 1, 2"), confs=kind.confs)
    assert len(answer.rows) == 3 * 80


@every_kind
def test_what_was_analyzed_reaches_the_constructor(sides: Sides, kind: Kind) -> None:
    statement = "SELECT * FROM f(TABLE(numbers), 'sum') ORDER BY total"
    answer = sides.assert_same(_registered(kind, Analyzed, statement, None), confs=kind.confs)
    assert [row[0] for row in answer.rows] == ["sum"] * 3


@every_kind
def test_the_dataframe_api_calls_the_same(sides: Sides, kind: Kind) -> None:
    def lateral(spark: SparkSession) -> DataFrame:
        function = F.udtf(Repeat, returnType=SCHEMA, useArrow=kind.arrow)
        return spark.range(0, 20, 1, 2).lateralJoin(function(F.col("id").outer()))

    def table(spark: SparkSession) -> DataFrame:
        function = F.udtf(Count, returnType=SCHEMA, useArrow=kind.arrow)
        return function(spark.range(0, 20, 1, 2).asTable().partitionBy(F.col("id") % 2))

    sides.assert_same(lateral, confs=kind.confs)
    sides.assert_same(table, confs=kind.confs)


@every_kind
def test_user_defined_types_come_and_go(sides: Sides, kind: Kind) -> None:
    from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

    class Mirror:
        def eval(self, point: Any) -> Iterator[tuple[Any, str]]:
            yield ExamplePoint(point.y, point.x), repr(point)

    def query(spark: SparkSession) -> DataFrame:
        function = F.udtf(
            Mirror, returnType=T.StructType().add("p", ExamplePointUDT()).add("seen", "string"), useArrow=kind.arrow
        )
        points = spark.createDataFrame(
            [(ExamplePoint(1.0, 2.0),), (ExamplePoint(-0.5, 0.0),)], T.StructType().add("point", ExamplePointUDT())
        )
        return points.lateralJoin(function(F.col("point").outer()))

    stock, ours = sides.stock(query, kind.confs), sides.updraft(query, confs=kind.confs)
    assert type(ours.error) is type(stock.error), ours.error
    assert [str(row) for row in ours.rows] == [str(row) for row in stock.rows]


# Arrow table functions: batches in, batches out.


class AddOne:
    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"number": pc.add(batch.column("id"), 1), "text": batch.column("s")})


class BatchSizes:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows += batch.num_rows
        yield pa.record_batch({"number": [batch.num_rows], "text": [str(batch.schema.names)]})

    def terminate(self) -> Iterator[pa.Table]:
        yield pa.table({"number": [self._rows], "text": ["end"]})


class OfScalars:
    def eval(self, number: pa.Array, text: pa.Array) -> Iterator[pa.Table]:
        yield pa.table({"number": number, "text": text})


class ManyBatches:
    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for index in range(5_000):
            yield pa.record_batch({"number": [index], "text": ["t"]})


NATIVE_CALLS = {
    "table": (AddOne, "SELECT * FROM f(TABLE(numbers))"),
    "table_partitioned": (BatchSizes, "SELECT * FROM f(TABLE(numbers) PARTITION BY k)"),
    "table_ordered": (AddOne, "SELECT * FROM f(TABLE(numbers) PARTITION BY k ORDER BY id DESC)"),
    "table_in_one_partition": (BatchSizes, "SELECT * FROM f(TABLE(numbers) WITH SINGLE PARTITION)"),
    "scalars": (OfScalars, "SELECT * FROM f(1L, 'one')"),
    "named_scalars": (OfScalars, "SELECT * FROM f(text => 'one', number => 1L)"),
    "many_batches": (ManyBatches, "SELECT count(*), sum(number), max(text) FROM f(TABLE(numbers))"),
}


def _native(handler: type, statement: str) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        spark.udtf.register("f", F.arrow_udtf(handler, returnType=SCHEMA))
        numbers = spark.range(0, 40, 1, 2).selectExpr("id", "id % 3 AS k", "IF(id % 5 = 0, NULL, 's' || id) AS s")
        numbers.createOrReplaceTempView("numbers")
        return spark.sql(statement)

    return query


@pytest.mark.parametrize("records", ["7", "10000"])
@pytest.mark.parametrize("call", NATIVE_CALLS)
def test_an_arrow_table_function_gives_what_it_gives_on_stock(sides: Sides, call: str, records: str) -> None:
    handler, statement = NATIVE_CALLS[call]
    confs = {"spark.sql.execution.arrow.maxRecordsPerBatch": records}
    assert sides.assert_same(_native(handler, statement), confs=confs).rows


# Errors.


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


class LateError:
    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        if number == 30:
            raise ValueError("the thirtieth")
        yield number, ""


ERRORS: dict[str, type] = {
    "raises_in_init": _raising("__init__", ValueError("in init")),
    "raises_in_eval": _raising("eval", ValueError("in eval, žluťoučký 🐎")),
    "raises_in_terminate": _raising("terminate", KeyError("in terminate")),
    "raises_late": LateError,
    "exits": _raising("eval", SystemExit(3)),
    "too_few_columns": _giving((1,)),
    "too_many_columns": _giving((1, "x", 2)),
    "another_type": _giving(("text", "x")),
    "not_rows": _giving(1, 2),
    "not_iterable": NotIterable,
    "wrong_signature": WrongSignature,
    "constructor_without_analysis": WantsAnalysis,
}


def _user_lines(error: Exception | None) -> list[str]:
    """The traceback's lines that speak of the user's code and of what it raised; not those of Spark's own files."""
    return [
        line.strip()
        for line in str(error).splitlines()
        if not line.startswith(("\tat ", "  File ", "    ")) or "fail_on_purpose" in line
    ]


def _assert_fails_alike(sides: Sides, query: Query, confs: Mapping[str, str]) -> None:
    stock, ours = sides.stock(query, confs), sides.updraft(query, confs=confs)
    assert type(ours.error) is type(stock.error), ours.error
    sides.assert_ran_on_the_pool(ours)
    if isinstance(stock.error, PythonException):
        assert _user_lines(ours.error) == _user_lines(stock.error)
    else:
        assert ours.rows == stock.rows


@every_kind
@pytest.mark.parametrize("error", ERRORS)
def test_a_table_function_fails_as_on_stock(sides: Sides, kind: Kind, error: str) -> None:
    _assert_fails_alike(sides, _registered(kind, ERRORS[error], CALLS["lateral"][1]), kind.confs)


NATIVE_ERRORS: dict[str, Callable[[], type]] = {
    "raises_in_eval": lambda: _raising("eval", ValueError("in eval")),
    "raises_in_init": lambda: _raising("__init__", ValueError("in init")),
    "too_few_columns": lambda: _giving(pa.table({"number": [1]})),
    "another_type": lambda: _giving(pa.table({"number": ["x"], "text": ["x"]})),
    "other_names": lambda: _giving(pa.table({"a": [1], "b": ["x"]})),
    "not_arrow": lambda: _giving((1, "x")),
    "not_iterable": lambda: NotIterable,
}


@pytest.mark.parametrize("error", NATIVE_ERRORS)
def test_an_arrow_table_function_fails_as_on_stock(sides: Sides, error: str) -> None:
    _assert_fails_alike(sides, _native(NATIVE_ERRORS[error](), "SELECT * FROM f(TABLE(numbers))"), {})


def test_a_null_where_none_is_declared_fails_as_on_stock(sides: Sides) -> None:
    for kind in KINDS:
        schema = T.StructType([T.StructField("number", T.LongType(), False), T.StructField("text", T.StringType())])

        def query(spark: SparkSession, kind: Kind = kind, schema: T.StructType = schema) -> DataFrame:
            return F.udtf(_giving((None, "x")), returnType=schema, useArrow=kind.arrow)()

        _assert_fails_alike(sides, query, kind.confs)


@every_kind
def test_a_table_function_that_kills_its_worker_fails_in_words(sides: Sides, kind: Kind) -> None:
    class Dies:
        def eval(self, number: int) -> Iterator[tuple[int, str]]:
            os.kill(os.getpid(), signal.SIGKILL)
            yield 1, ""

    error = sides.updraft(_registered(kind, Dies, CALLS["lateral"][1]), confs=kind.confs).error
    assert error is not None
    assert sides.compares_stock_with_itself or "SIGKILL" in str(error)


@every_kind
def test_a_limit_ends_a_table_function_that_would_go_on(sides: Sides, kind: Kind) -> None:
    answer = sides.assert_same(_registered(kind, LateError, "SELECT * FROM numbers, LATERAL f(id) LIMIT 3"))
    assert len(answer.rows) == 3
