# SPDX-License-Identifier: Apache-2.0
"""Table functions whose static method `analyze` Spark runs to plan a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, OrderingColumn, PartitioningColumn, SelectedColumn

from tests.workers.failures import failure
from tests.workers.scenario import scenario

_NAME_AND_TOTAL = StructType().add("name", StringType()).add("total", LongType())
_TABLE = "(SELECT concat('k', id % 3) AS name, id AS n FROM range(0, 20, 1, 2))"


def _called(spark: SparkSession, function: type[Any], query: str) -> Any:
    spark.udtf.register("analyzed", F.udtf(function))
    frame = spark.sql(query)
    return frame.schema.simpleString(), sorted((list(row) for row in frame.collect()), key=repr)


class _AsArgument:
    """Table function whose output column has the argument's type."""

    @staticmethod
    def analyze(value: AnalyzeArgument) -> AnalyzeResult:
        return AnalyzeResult(StructType().add("value", value.dataType))

    def eval(self, value: Any) -> Iterator[Any]:
        yield (value,)


@scenario(everyday=True)
def schema_of_the_argument(spark: SparkSession) -> Any:
    queries = [f"SELECT * FROM analyzed({value})" for value in ("1", "'text'", "array(1.5D)", "DATE'2026-01-01'")]
    return [_called(spark, _AsArgument, query) for query in queries]


@scenario()
def schema_of_a_broadcast(spark: SparkSession) -> Any:
    """Use a broadcast value in the driver's worker, which plans the query, and in the workers of the tasks."""
    names = spark.sparkContext.broadcast(["first", "second"])

    class Columns:
        @staticmethod
        def analyze(value: AnalyzeArgument) -> AnalyzeResult:
            schema = StructType()
            for name in names.value:
                schema = schema.add(name, value.dataType)
            return AnalyzeResult(schema)

        def eval(self, value: Any) -> Iterator[Any]:
            yield tuple(value for _ in names.value)

    return _called(spark, Columns, "SELECT * FROM analyzed(7)")


@scenario()
def schema_of_a_constant(spark: SparkSession) -> Any:
    class Columns:
        @staticmethod
        def analyze(names: AnalyzeArgument) -> AnalyzeResult:
            assert names.isConstantExpression
            schema = StructType()
            for name in names.value.split():
                schema = schema.add(name, StringType())
            return AnalyzeResult(schema)

        def eval(self, names: str) -> Iterator[Any]:
            yield tuple(name.upper() for name in names.split())

    return _called(spark, Columns, "SELECT * FROM analyzed('a b c')")


@scenario()
def named_arguments(spark: SparkSession) -> Any:
    class Named:
        @staticmethod
        def analyze(first: AnalyzeArgument, **others: AnalyzeArgument) -> AnalyzeResult:
            schema = StructType().add("first", first.dataType)
            for name in sorted(others):
                schema = schema.add(name, others[name].dataType)
            return AnalyzeResult(schema)

        def eval(self, first: Any, **others: Any) -> Iterator[Any]:
            yield (first, *(others[name] for name in sorted(others)))

    return _called(spark, Named, "SELECT * FROM analyzed(b => 'text', first => 1, a => 2.5D)")


class _Totals:
    """Table function that returns, for each name in a table, the sum of column n."""

    @staticmethod
    def analyze(table: AnalyzeArgument) -> AnalyzeResult:
        assert table.isTable
        return AnalyzeResult(_NAME_AND_TOTAL, partitionBy=[PartitioningColumn("name")])

    def __init__(self) -> None:
        self.name = ""
        self.total = 0

    def eval(self, row: Row) -> None:
        self.name = row["name"]
        self.total += row["n"]

    def terminate(self) -> Iterator[Any]:
        yield self.name, self.total


@scenario(everyday=True)
def table_argument_with_partitions(spark: SparkSession) -> Any:
    return _called(spark, _Totals, f"SELECT * FROM analyzed(TABLE{_TABLE})")


@scenario()
def table_argument_in_one_partition(spark: SparkSession) -> Any:
    class Ordered:
        @staticmethod
        def analyze(table: AnalyzeArgument) -> AnalyzeResult:
            schema = StructType().add("numbers", StringType())
            return AnalyzeResult(schema, withSinglePartition=True, orderBy=[OrderingColumn("n", ascending=False)])

        def __init__(self) -> None:
            self.numbers: list[int] = []

        def eval(self, row: Row) -> None:
            self.numbers.append(row["n"])

        def terminate(self) -> Iterator[Any]:
            yield (str(self.numbers),)

    return _called(spark, Ordered, f"SELECT * FROM analyzed(TABLE{_TABLE})")


@scenario()
def table_argument_with_selected_columns(spark: SparkSession) -> Any:
    class Selected(_Totals):
        @staticmethod
        def analyze(table: AnalyzeArgument) -> AnalyzeResult:
            select = [SelectedColumn("name"), SelectedColumn("n * 10", alias="n")]
            return AnalyzeResult(_NAME_AND_TOTAL, partitionBy=[PartitioningColumn("name")], select=select)

    return _called(spark, Selected, f"SELECT * FROM analyzed(TABLE{_TABLE})")


@scenario()
def result_that_carries_state(spark: SparkSession) -> Any:
    """Pass a result of `analyze` to the workers that evaluate the function."""

    @dataclass
    class Prepared(AnalyzeResult):
        words: tuple[str, ...] = ()

    class Repeats:
        @staticmethod
        def analyze(text: AnalyzeArgument) -> AnalyzeResult:
            return Prepared(StructType().add("word", StringType()), words=tuple(text.value.split()))

        def __init__(self, prepared: Any) -> None:
            self.words = prepared.words

        def eval(self, text: str) -> Iterator[Any]:
            for word in self.words:
                yield (word.upper(),)

    return _called(spark, Repeats, "SELECT * FROM analyzed('some few words')")


@scenario()
def lateral_join(spark: SparkSession) -> Any:
    query = f"SELECT t.n, a.value FROM {_TABLE} t, LATERAL analyzed(t.n * 2) a WHERE t.n < 5"
    return _called(spark, _AsArgument, query)


@scenario()
def exception_in_analyze(spark: SparkSession) -> Any:
    class Refuses:
        @staticmethod
        def analyze(value: AnalyzeArgument) -> AnalyzeResult:
            raise ValueError("this argument is refused")

        def eval(self, value: Any) -> Iterator[Any]:
            yield (value,)

    return failure(lambda: _called(spark, Refuses, "SELECT * FROM analyzed(1)"))


@scenario()
def analyze_that_returns_something_else(spark: SparkSession) -> Any:
    class Wrong:
        @staticmethod
        def analyze(value: AnalyzeArgument) -> DataType:
            return value.dataType

        def eval(self, value: Any) -> Iterator[Any]:
            yield (value,)

    return failure(lambda: _called(spark, Wrong, "SELECT * FROM analyzed(1)"))


@scenario()
def analyze_without_the_right_arguments(spark: SparkSession) -> Any:
    return failure(lambda: _called(spark, _AsArgument, "SELECT * FROM analyzed(1, 2)"))
