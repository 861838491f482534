# SPDX-License-Identifier: Apache-2.0
"""Descriptions of registered functions: DESCRIBE and SHOW, and the names of the columns that calls make."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.named import before_tables, values
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import SPARK_VERSION
from updraft.spark import functions as U


def test_a_misspelt_table_function_is_named_with_the_one_that_was_meant(named: SparkSession) -> None:
    query = "SELECT * FROM updraft.default.wrds('a')"
    with pytest.raises(PySparkException) as refused:
        named.sql(query if SPARK_VERSION >= (4, 2) else "DESCRIBE FUNCTION updraft.default.wrds").collect()
    assert "has no function wrds: did you mean words?" in str(refused.value)


def test_describe_query_shows_the_columns_of_a_table_function(named: SparkSession) -> None:
    with before_tables(named) as catalog:
        columns = values(named, f"DESCRIBE QUERY SELECT * FROM {catalog}words('two words')")
    assert columns == [("word", "string", None), ("length", "bigint", None)]


def test_show_lists_functions_and_describe_says_what_their_authors_said(named: SparkSession) -> None:
    listed = values(named, "SHOW USER FUNCTIONS IN updraft.default")
    assert {"add", "rebate", "twice"} <= {name.rpartition(".")[2] for name in listed}
    text = "\n".join(values(named, "DESCRIBE FUNCTION updraft.default.rebate"))
    assert "rebate(price DOUBLE NOT NULL, percent DOUBLE NOT NULL = 50.0) -> DOUBLE" in text
    assert "which are more by now" in text
    assert "version: 2" in text
    assert "owner: pricing" in "\n".join(values(named, "DESCRIBE FUNCTION updraft.default.`rebate@1`"))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "words",
            [
                "words(text STRING NOT NULL) -> TABLE(word STRING NOT NULL, length BIGINT NOT NULL)",
                "Return the words of a text.",
                "version: 1",
            ],
        ),
        ("mean", ["mean(value DOUBLE NOT NULL) -> DOUBLE", "Mean of the values.", "version: 1"]),
        (
            "unloadable",
            [
                "unloadable(value BIGINT NOT NULL) -> BIGINT NOT NULL",
                "Cannot be loaded, whatever it is called with.",
                "version: 1",
                "fault: function 'unloadable' cannot be loaded: OSError: its weights are missing",
            ],
        ),
        (
            "echo",
            [
                (
                    "Spark cannot call echo: it accepts any columns, but SQL needs their types: "
                    "declare them in its type hints"
                )
            ],
        ),
    ],
)
def test_functions_of_each_kind_and_those_that_cannot_be_called_are_described(
    named: SparkSession, name: str, lines: list[str]
) -> None:
    assert values(named, f"DESCRIBE FUNCTION updraft.default.{name}") == lines


@pytest.mark.parametrize(
    ("call", "column"),
    [
        ("add(id, 1)", "add(id, 1)"),
        ("add(id, 1) + 1", "(add(id, 1) + 1)"),
        ("add(right => 1, left => id)", "add(id, 1)"),
        ("`rebate@1`(id)", "rebate@1(id)"),
        ("text.upper('a')", "text.upper(a)"),
        ("mean(id)", "mean(id)"),
        (
            "defaults(1, last => 3)",
            "defaults(1, x, 2026-02-28, 2026-02-28 04:00:00, 1.50, [1,2.5], [a,b], NULL, 0x0001, 3)",
        ),
        ("add(id, 1) AS mine", "mine"),
    ],
)
def test_a_column_is_named_after_the_call(named: SparkSession, call: str, column: str) -> None:
    assert named.sql(f"SELECT updraft.default.{call} FROM range(2)").columns == [column]


def test_a_column_of_the_dataframe_api_has_the_same_name(named: SparkSession) -> None:
    needs_spark((4, 0), "rule of an extension before it names columns of its API")
    frame = named.range(2)
    assert frame.select(U.call("add", "id", U.call("add", "id", F.lit(1)))).columns == ["add(id, add(id, 1))"]
    assert frame.groupBy("id").agg(U.call("mean", "id")).columns == ["id", "mean(id)"]
    assert frame.select(U.call("rebate", "id", version="1")).where("`rebate@1(id)` > 0").count() == 1


@pytest.mark.parametrize("call", ["add(nowhere, 1)", "add(right => nowhere, left => id)", "mean(nowhere)"])
def test_a_column_that_is_not_there_is_named(named: SparkSession, call: str) -> None:
    with pytest.raises(AnalysisException, match=r"UNRESOLVED_COLUMN.*`nowhere`"):
        named.sql(f"SELECT updraft.default.{call} FROM range(2)")
