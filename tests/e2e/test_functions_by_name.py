# SPDX-License-Identifier: Apache-2.0
"""Registered functions called from SQL and the DataFrame API: one function gives one answer however it is called."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications import deployed_functions
from tests.e2e.named import CATALOG, before_tables, values, weights_of
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, SPARK_VERSION, another_session, runtime_confs
from tests.support.waiting import until
from updraft.spark import functions as U


def test_a_call_in_sql_is_a_call_in_python(named: SparkSession) -> None:
    expected = [deployed_functions.rebate(float(price), 20.0) for price in range(5)]
    assert values(named, "SELECT updraft.default.rebate(id, 20) FROM range(5)") == expected
    frame = named.range(5)
    assert [row[0] for row in frame.select(U.call("rebate", "id", F.lit(20))).collect()] == expected


def test_a_version_is_pinned_and_otherwise_the_last_one_answers(named: SparkSession) -> None:
    query = "SELECT updraft.default.rebate(100), updraft.default.`rebate@1`(100), updraft.default.`rebate@2`(100)"
    assert values(named, query) == [(50.0, 90.0, 50.0)]
    pinned = named.range(1).select(U.call("rebate", F.lit(100.0), version="1"))
    assert pinned.collect()[0][0] == 90.0


def test_a_call_from_scala_is_a_call_in_python(named: SparkSession) -> None:
    needs_spark((4, 0), "scala.jdk of Scala 2.13")
    jvm = named.sparkContext._jvm
    assert jvm is not None
    scala = jvm.io.updraft.spark.functions.package
    sql = jvm.org.apache.spark.sql.functions
    arguments = jvm.scala.jdk.CollectionConverters.ListHasAsScala([sql.col("id"), sql.lit(20)]).asScala().toSeq()
    frame = named.range(5)
    expected = frame.select(U.call("rebate", "id", F.lit(20), version="1")).collect()
    for column in (scala.call("rebate@1", arguments), scala.callOn("other", "rebate@1", arguments)):
        assert frame.select(Column(column)).collect() == expected


def test_a_struct_may_be_null_where_its_members_may_not(named: SparkSession) -> None:
    corner = "IF(id = 1, NULL, named_struct('x', nullif(id, 9), 'y', 0.5D))"
    assert values(named, f"SELECT updraft.default.corner_sum({corner}) FROM range(3)") == [0.5, None, 2.5]


def test_arguments_have_names_and_defaults(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.default.rebate(percent => 25, price => 100)") == [75.0]
    assert values(named, "SELECT updraft.default.rebate(price => 100)") == [50.0]


def test_a_default_of_a_column_calls_no_pool(named: SparkSession) -> None:
    column = "price DOUBLE DEFAULT updraft.default.rebate(100, 20)"
    with pytest.raises(PySparkException, match=r"rebate runs on a pool: .* cannot be called in DEFAULT or VALUES"):
        named.sql(f"CREATE TABLE spark_catalog.default.with_default ({column}) USING parquet")


@pytest.mark.parametrize("call", ["rebate')(percent => 25, price => 100)", "scaled_sum')(factor => 3, value => 1)"])
def test_names_of_arguments_behind_identifier_are_refused_before_a_task_runs(named: SparkSession, call: str) -> None:
    query = f"SELECT IDENTIFIER('updraft.default.{call}"
    if SPARK_VERSION < (4, 0):
        # The connector's parser hides the call until its name is known.
        assert values(named, query) == values(named, query.replace("IDENTIFIER('", "").replace("')", "", 1))
        return
    with pytest.raises(PySparkException, match="instead of IDENTIFIER"):
        named.sql(query)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("defaults(1, last => 3)", {"last": 3}),
        ("defaults(1, 'y', last => 3)", {"text": "y", "last": 3}),
        ("defaults(last => 3, number => 1, note => 'z')", {"last": 3, "note": "z"}),
        ("defaults(1, raw => x'ff', tags => array('c'))", {"raw": b"\xff", "tags": ["c"]}),
        ("defaults(1)", {}),
    ],
)
def test_a_default_is_left_out_before_other_arguments(
    named: SparkSession, call: str, arguments: dict[str, Any]
) -> None:
    expected = deployed_functions.defaults(1, **arguments)
    assert values(named, f"SELECT updraft.default.{call} FROM range(2)") == [expected] * 2


def test_a_default_that_is_too_large_to_be_described_is_left_out_at_the_end_alone(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.default.vast(1)") == [5002]
    with pytest.raises(PySparkException, match="argument text is missing, but a later one is given"):
        named.sql("SELECT updraft.default.vast(1, last => 3)")


@pytest.mark.parametrize(
    ("call", "numbers"),
    [
        ("stepped(5)", [5, 15]),
        ("stepped(5, 3)", [5, 15, 25]),
        ("stepped(5, step => 1)", [5, 6]),
        ("stepped(step => 1, first => 5)", [5, 6]),
        ("stepped(first => 5)", [5, 15]),
    ],
)
def test_a_table_function_has_names_and_defaults(named: SparkSession, call: str, numbers: list[int]) -> None:
    with before_tables(named) as catalog:
        assert values(named, f"SELECT number FROM {catalog}{call}") == numbers
        lateral = f"SELECT number FROM (SELECT 5 AS five), LATERAL {catalog}{call.replace('5', 'five')}"
        assert values(named, lateral) == numbers


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            "rebate()",
            "was called with 0 arguments: its signature is rebate(price DOUBLE NOT NULL, percent DOUBLE NOT NULL = ",
        ),
        ("rebate(1, 2, 3)", "was called with 3 arguments"),
        ("rebate(1, reduction => 2)", "it has no argument reduction"),
        ("rebate(1, price => 2)", "argument price is given twice"),
        ("rebate(percent => 2)", "argument price is missing"),
        ("add(array(1), 2)", "DATATYPE_MISMATCH"),
        ("words('a b')", "call it in FROM"),
        ("nothing(1)", "has no function nothing"),
        ("rebat(1)", "has no function rebat: did you mean rebate?"),
        ("text.uper('a')", "has no function text.uper: did you mean text.upper?"),
        ("`rebate@9`(1)", "has no version 9 of rebate: it has 1, 2"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_before_there_are_tasks(named: SparkSession, call: str, words: str) -> None:
    with pytest.raises((AnalysisException, PySparkException)) as refused:
        named.sql(f"SELECT updraft.default.{call} FROM range(3)")
    assert words in str(refused.value)


def test_names_with_dots_are_namespaces(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.default.text.upper('abc')") == ["ABC"]
    named.sql("USE updraft.default.text")
    try:
        # A name that Spark's own functions do not have.
        assert values(named, "SELECT slug('A b'), updraft.default.text.upper(null)") == [("a-b", None)]
        # DESCRIBE shows the function that a call would use.
        assert "Function: upper" in values(named, "DESCRIBE FUNCTION upper")
    finally:
        named.sql("USE spark_catalog.default")
    assert values(named, "SHOW NAMESPACES IN updraft") == ["default", "other"]


def test_a_function_that_no_worker_can_load_is_refused_with_the_reason(named: SparkSession) -> None:
    with before_tables(named) as catalog:
        for name, query in (
            ("unloadable", "SELECT updraft.default.unloadable(1)"),
            ("unloadable_steps", f"SELECT * FROM {catalog}unloadable_steps(1)"),
        ):
            with pytest.raises(PySparkException, match=f"{name} cannot be called now: .* its weights are missing"):
                named.sql(query)


def test_a_function_that_could_not_be_loaded_is_called_again_and_works_when_it_can_be(
    named: SparkSession, deployed: LocalPool
) -> None:

    def are_at_fault(at_fault: bool) -> bool:
        # The session asks a pool again every two seconds.
        described = (values(named, f"DESCRIBE FUNCTION updraft.default.{name}") for name in calls)
        return all(any(line.startswith("unhealthy: ") for line in lines) is at_fault for lines in described)

    with before_tables(named) as catalog:
        calls = {
            "weighted": "SELECT updraft.default.weighted(id) FROM range(1, 2)",
            "weighted_sum": "SELECT updraft.default.weighted_sum(id) FROM range(1, 2)",
            "weighted_steps": f"SELECT number FROM {catalog}weighted_steps(1)",
        }
        for query in calls.values():
            with pytest.raises((PySparkException, Py4JJavaError), match="cannot be loaded: FileNotFoundError"):
                values(named, query)
        until("their faults are shown", lambda: are_at_fault(True))
        weights_of(deployed).write_text("3")
        for query in calls.values():
            assert values(named, query) == [3]
        until("they are well again", lambda: are_at_fault(False))


def test_calls_of_calls_and_of_other_functions_run_each_on_their_own(named: SparkSession) -> None:
    plus_one = F.udf(lambda value: value + 1, "long", useArrow=True)
    frame = named.range(4).select(
        U.call("add", plus_one("id"), F.lit(10)).alias("outer"),
        plus_one(U.call("add", "id", "id")).alias("inner"),
        U.call("twice", U.call("rebate", "id", F.lit(0.0))).alias("chained"),
    )
    assert [tuple(row) for row in frame.collect()] == [(i + 11, 2 * i + 1, 2.0 * i) for i in range(4)]


def test_calls_stand_wherever_expressions_do(named: SparkSession) -> None:
    query = """
        SELECT updraft.default.add(id % 2, 1) AS k, sum(updraft.default.add(id, 1)) AS s
        FROM range(10) WHERE updraft.default.add(id, 0) > 3
        GROUP BY updraft.default.add(id % 2, 1) HAVING sum(id) > 0 ORDER BY k
    """
    assert values(named, query) == [(1, 4 + 6 + 8 + 3), (2, 5 + 7 + 9 + 3)]
    joined = "SELECT count(*) FROM range(5) l JOIN range(5) r ON updraft.default.add(l.id, 1) = r.id"
    assert values(named, joined) == [4]


def test_a_pool_of_another_name_is_called_at_its_own_endpoint(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.other.add(id, 1) FROM range(3)") == [1, 2, 3]
    plan = named.range(3).select(U.call("add", "id", "id", pool="other"))._jdf.queryExecution().toString()
    assert "FlightCall [add()], endpoint=grpc+unix://" in plan


def test_values_of_every_kind_arrive_as_python_has_them(named: SparkSession) -> None:
    query = """SELECT updraft.default.following(
        DATE '2026-02-28', TIMESTAMP '2026-02-28 12:00:00 UTC', CAST('1.5' AS DECIMAL(10, 2)))"""
    assert values(named, query) == ["2026-03-01 2026-02-28T12:00:00+00:00 1.50"]
    assert values(named, "SELECT updraft.default.total(array(1, 2, 3))") == [6]
    assert values(named, "SELECT updraft.default.anything() FROM range(3)") == [4.0, 4.0, 4.0]


def test_an_error_of_a_function_is_one_of_python(named: SparkSession) -> None:
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        values(named, "SELECT updraft.default.reciprocal(id) FROM range(3)")
    assert values(named, "SELECT updraft.default.safe_reciprocal(id) FROM range(3)") == [None, 1.0, 0.5]


def test_a_struct_has_the_value_or_the_error_of_each_row(named: SparkSession) -> None:
    query = "SELECT explained.value, explained.error FROM (SELECT updraft.default.explained_reciprocal(id) AS explained"
    assert values(named, f"{query} FROM range(3))") == [
        (None, "ZeroDivisionError: division by zero"),
        (1, None),
        (0.5, None),
    ]


def test_an_iterator_runs_over_all_batches_of_a_task(named: SparkSession) -> None:
    with runtime_confs(named, {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}):
        rows = values(named, "SELECT id, updraft.default.running_total(id) FROM range(0, 95, 1, 1)")
    assert rows == [(number, sum(range(number + 1))) for number in range(95)]


def test_an_async_function_answers_in_the_order_of_the_rows(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.default.awaited(id) FROM range(0, 100, 1, 2)") == list(range(0, 300, 3))


def test_a_null_where_none_is_allowed_names_the_argument(named: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="argument 'right' of function 'add' has a null"):
        values(named, "SELECT updraft.default.add(id, nullif(id, 2)) FROM range(3)")


def test_a_session_whose_endpoint_is_not_set_says_which_settings_there_are(
    spark: SparkSession, deployed: LocalPool
) -> None:
    with another_session(spark) as session:
        session.conf.set(CATALOG, "io.updraft.spark.FunctionCatalog")
        session.conf.unset(ENDPOINT)
        with pytest.raises(PySparkException, match=r"set spark.updraft.udf.endpoint or spark.sql.catalog.updraft.pool"):
            session.sql("SELECT updraft.default.add(1, 2)").collect()


def test_a_table_function_gives_its_rows_alone_and_beside_those_they_came_from(named: SparkSession) -> None:
    with before_tables(named) as catalog:
        assert values(named, f"SELECT * FROM {catalog}words('to be or not')") == [
            ("to", 2),
            ("be", 2),
            ("or", 2),
            ("not", 3),
        ]
        named.createDataFrame([(1, "a bb"), (2, ""), (3, "ccc")], "id int, text string").createOrReplaceTempView(
            "texts"
        )
        lateral = f"SELECT id, w.word, length FROM texts, LATERAL {catalog}words(text) AS w ORDER BY id, w.word"
        assert values(named, lateral) == [(1, "a", 1), (1, "bb", 2), (3, "ccc", 3)]
        assert values(named, f"SELECT word FROM {catalog}words(text => 'a bb')") == ["a", "bb"]
        with pytest.raises(PySparkException, match="add does not return a table"):
            named.sql(f"SELECT * FROM {catalog}add(1, 2)")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("SELECT number FROM {stepped}(updraft.default.add(4, 1), 3)", [5, 15, 25]),
        ("SELECT number FROM {stepped}(4, step => updraft.default.add(1, 2))", [4, 7]),
        ("SELECT number FROM (SELECT 4 AS four), LATERAL {stepped}(updraft.default.add(four, 1), 3)", [5, 15, 25]),
        (
            "SELECT number FROM (SELECT 4 AS four), LATERAL (SELECT * FROM {stepped}(updraft.default.add(four, 1), 3))",
            [5, 15, 25],
        ),
        ("SELECT sum FROM (SELECT 4 AS four), LATERAL (SELECT updraft.default.add(four, 1) AS sum)", [5]),
        ("SELECT n FROM (SELECT 1 AS one), LATERAL explode(array(updraft.default.add(one, 1))) AS t(n)", [2]),
    ],
)
def test_a_call_stands_in_lateral_and_as_the_whole_argument_of_a_table_function(
    named: SparkSession, query: str, numbers: list[int]
) -> None:
    with before_tables(named) as catalog:
        assert values(named, query.format(stepped=f"{catalog}stepped")) == numbers


def test_functions_of_spark_do_not_need_the_pool_of_the_current_namespace(
    spark: SparkSession, deployed: LocalPool
) -> None:
    with another_session(spark) as session, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        session.conf.set(ENDPOINT, f"grpc://127.0.0.1:{nobody.getsockname()[1]}")
        session.conf.set(CATALOG, "io.updraft.spark.FunctionCatalog")
        session.sql("USE updraft.default")
        query = "SELECT count(*), max(mask('aA', lowerChar => 'q')) FROM range(3) WHERE abs(id) > 0"
        assert values(session, query) == [(2, "qX")]
        assert "Function: abs" in values(session, "DESCRIBE FUNCTION abs")
        if SPARK_VERSION >= (4, 2):
            assert values(session, "SELECT builtin.upper('a'), id FROM builtin.range(1)") == [("A", 0)]
        session.conf.set("spark.updraft.udf.connectTimeout", "1s")
        seen = (
            r"cannot list the functions of the pool at .*: no answer within 1.0 s \(.*\): connection refused: "
            "nothing listens at"
        )
        with pytest.raises((PySparkException, Py4JJavaError), match=seen):
            session.sql("SELECT slug('a')")


def test_a_misspelt_setting_of_the_catalog_is_refused(spark: SparkSession, deployed: LocalPool) -> None:
    with another_session(spark) as session:
        session.conf.set(CATALOG, "io.updraft.spark.FunctionCatalog")
        session.conf.set(f"{CATALOG}.pools.other", deployed.tcp_endpoint)
        with pytest.raises(PySparkException, match=r"updraft.pools.other is not a setting of this catalog"):
            session.sql("SELECT updraft.default.add(1, 2)").collect()
