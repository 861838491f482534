# SPDX-License-Identifier: Apache-2.0
"""Spark casts arguments of a registered function only if no value changes, in ANSI mode and without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, NumberFormatException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.named import before_tables, values
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import runtime_confs
from updraft.spark import functions as U

_ROWS = "FROM (SELECT id, CAST(id AS STRING) AS text, id + 0.5D AS half FROM range(2))"


@pytest.fixture(params=["true", "false"], ids=["ANSI", "not ANSI"])
def session(named: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with runtime_confs(named, {"spark.sql.ansi.enabled": request.param}):
        yield named


@pytest.mark.parametrize(
    ("call", "argument", "declared", "given"),
    [
        ("add(1.0, 2)", "left of add", "BIGINT", "DECIMAL(2,1)"),
        ("add(2, half)", "right of add", "BIGINT", "DOUBLE"),
        ("add(left => 2, right => CAST(1 AS FLOAT))", "right of add", "BIGINT", "FLOAT"),
        ("as_int16(1.5)", "value of as_int16", "SMALLINT", "DECIMAL(2,1)"),
        ("as_decimal(1.555)", "value of as_decimal", "DECIMAL(10,2)", "DECIMAL(4,3)"),
        ("as_decimal(half)", "value of as_decimal", "DECIMAL(10,2)", "DOUBLE"),
        ("as_decimal('1.5')", "value of as_decimal", "DECIMAL(10,2)", "STRING"),
        ("total(array(1, 1.5))", "values of total", "ARRAY<BIGINT>", "ARRAY<DECIMAL(11,1)>"),
        ("entries(half)", "value of entries", "BIGINT", "DOUBLE"),
        ("following(TIMESTAMP '2026-02-28 12:00:00', now(), 1)", "day of following", "DATE", "TIMESTAMP"),
    ],
)
def test_a_cast_that_could_change_a_value_is_refused_before_there_are_tasks(
    session: SparkSession, call: str, argument: str, declared: str, given: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        session.sql(f"SELECT updraft.default.{call} {_ROWS}")
    assert f"argument {argument} is {declared}, not {given}, and a cast could change its value" in str(refused.value)
    assert f"write CAST(... AS {declared})" in str(refused.value)


@pytest.mark.parametrize("call", ["stepped(1.5D)", "stepped(first => 1.5D)"])
@pytest.mark.parametrize("query", ["SELECT * FROM {}", "SELECT * FROM range(2), LATERAL {}"])
def test_so_is_one_of_a_table_functions_argument(session: SparkSession, query: str, call: str) -> None:
    with (
        before_tables(session) as catalog,
        pytest.raises(AnalysisException, match="argument first of stepped is BIGINT, not DOUBLE, and a cast could"),
    ):
        session.sql(query.format(f"{catalog}{call}"))


def test_so_is_one_of_a_column_of_the_dataframe_api(session: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="argument left of add is BIGINT, not DOUBLE"):
        session.range(2).select(U.call("add", F.col("id") / 2, "id"))
    with pytest.raises(AnalysisException, match="argument value of entries is BIGINT, not DOUBLE"):
        session.range(2).agg(U.call("entries", F.lit(1.5)))


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        ("add(CAST(half AS BIGINT), CAST(1.9 AS INT))", [1, 2]),
        ("add(CAST(id AS TINYINT), 10BD)", [10, 11]),
        ("rebate(id, 50)", [0.0, 0.5]),
        ("rebate(1.5, 50)", [0.75, 0.75]),
        ("rebate(CAST(0.5 AS FLOAT), 50)", [0.25, 0.25]),
        ("as_int16(5)", [5, 5]),
        ("as_decimal(1.5)", ["1.50", "1.50"]),
        ("as_decimal(id)", ["0.00", "1.00"]),
        ("add(text, '12')", [12, 13]),
        ("rebate('1.5', 50)", [0.75, 0.75]),
        ("text.upper(null)", [None, None]),
        ("total(array(1, 2))", [3, 3]),
        ("mean(id)", [0.5]),
    ],
)
def test_what_widens_or_is_cast_by_the_query_is_called(session: SparkSession, call: str, answers: list[object]) -> None:
    assert values(session, f"SELECT updraft.default.{call} {_ROWS}") == answers


@pytest.mark.parametrize(
    "call", ["as_int16(70000)", "as_int16(id + 70000)", "as_decimal(id + 100000000)", "add(99999999999999999999, 1)"]
)
def test_a_number_that_is_too_large_is_an_error_and_no_other_number(session: SparkSession, call: str) -> None:
    needs_spark((4, 0), "class of its own for errors of tasks")
    with pytest.raises(ArithmeticException):
        values(session, f"SELECT updraft.default.{call} {_ROWS}")


@pytest.mark.parametrize("call", ["add(text || '.5', 1)", "entries(text || '.5')"])
def test_a_text_that_is_no_such_number_is_an_error(session: SparkSession, call: str) -> None:
    needs_spark((4, 0), "class of its own for errors of tasks")
    with pytest.raises(NumberFormatException):
        values(session, f"SELECT updraft.default.{call} {_ROWS}")


def test_a_text_that_is_no_such_number_is_an_error_of_a_table_function_too(session: SparkSession) -> None:
    needs_spark((4, 0), "class of its own for errors of tasks")
    with before_tables(session) as catalog, pytest.raises(NumberFormatException):
        values(session, f"SELECT number {_ROWS}, LATERAL {catalog}stepped(text || '.5')")


def test_casts_of_the_query_are_those_of_its_mode(named: SparkSession) -> None:
    needs_spark((4, 0), "class of its own for errors of tasks")
    query = f"SELECT updraft.default.as_int16(CAST(id + 70000 AS SMALLINT)) {_ROWS}"
    with runtime_confs(named, {"spark.sql.ansi.enabled": "false"}):
        assert values(named, query) == [70000 - 2**16, 70001 - 2**16]
        with before_tables(named) as catalog:
            table = f"SELECT number {_ROWS}, LATERAL {catalog}stepped(CAST(text || '.5' AS BIGINT), 1)"
            assert values(named, table) == [0, 1]
    with pytest.raises(ArithmeticException):
        values(named, query)
