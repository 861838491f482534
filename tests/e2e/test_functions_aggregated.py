# SPDX-License-Identifier: Apache-2.0
"""Registered aggregates in SQL give the same answers as Spark's own over the same groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession, Window

from tests.support.plan_metrics import metrics_of
from tests.support.spark import executed_plan
from updraft.spark import functions as U


@pytest.fixture(scope="module")
def measured(named: SparkSession) -> SparkSession:
    """Return a session with a view of values in groups, including a null key, over several partitions."""
    frame = named.range(0, 1000, 1, 4).selectExpr(
        "CASE WHEN id % 10 = 0 THEN NULL ELSE id % 3 END AS k", "CAST(id AS DOUBLE) AS v", "id", "id % 7 AS d"
    )
    frame.createOrReplaceTempView("measured")
    return named


def assert_equals_stock(session: SparkSession, query: str) -> None:
    """Compare a query with `{mean}` and `{entries}` as registered aggregates and as Spark's own."""
    ours = session.sql(query.format(mean="updraft.default.mean", entries="updraft.default.entries")).toPandas()
    stock = session.sql(query.format(mean="avg", entries="count")).toPandas()
    assert_frame_equal(ours.set_axis(stock.columns, axis=1), stock)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, {mean}(v) FROM measured GROUP BY k ORDER BY k",
        "SELECT k % 2 AS odd, {mean}(v + 1) * 2 FROM measured GROUP BY k % 2 ORDER BY odd",
        "SELECT {mean}(v) FROM measured",
        "SELECT {mean}(v) FROM measured WHERE id < 0",
        "SELECT k, {mean}(v), {mean}(v * 2), sum(id) FROM measured GROUP BY k HAVING {mean}(v) > 0 ORDER BY 1",
        "SELECT {mean}(v), max(v) FROM measured",
        "SELECT k FROM measured GROUP BY k HAVING {mean}(v) > 499 ORDER BY k",
        "SELECT k, {mean}(v) FROM (SELECT if(id % 2 = 0, 0.0D, -0.0D) AS k, v FROM measured) GROUP BY k",
    ],
)
def test_an_aggregate_is_what_spark_makes_of_the_same_groups(measured: SparkSession, query: str) -> None:
    assert_equals_stock(measured, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, {entries}(id) FILTER (WHERE id < 3) FROM measured GROUP BY k ORDER BY k",
        "SELECT k, {mean}(v) FILTER (WHERE id < 3 OR id IS NULL) FROM measured GROUP BY k ORDER BY k",
        "SELECT k, {entries}(id) FILTER (WHERE nullif(id, 5) > 4) FROM measured GROUP BY k ORDER BY k",
        "SELECT {entries}(id) FILTER (WHERE id < 0), {mean}(v) FILTER (WHERE id < 0) FROM measured",
        """SELECT k, {mean}(v), {mean}(v) FILTER (WHERE d = 1), count(*) FILTER (WHERE d = 2)
        FROM measured GROUP BY k HAVING {entries}(id) FILTER (WHERE d = 6) > 0 ORDER BY k""",
        "SELECT k, {mean}(v) FILTER (WHERE v > (SELECT avg(v) FROM measured)) FROM measured GROUP BY k ORDER BY k",
        "SELECT k, {entries}(1000 DIV d) FILTER (WHERE d <> 0) FROM measured GROUP BY k ORDER BY k",
        "SELECT k, {entries}(k) FILTER (WHERE k IS NOT NULL) FROM measured GROUP BY k ORDER BY k",
    ],
)
def test_a_filter_leaves_rows_out_and_keeps_their_groups(measured: SparkSession, query: str) -> None:
    assert_equals_stock(measured, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, {entries}(DISTINCT d) FROM measured GROUP BY k ORDER BY k",
        "SELECT {mean}(DISTINCT d), {entries}(DISTINCT d) FROM measured",
        "SELECT {entries}(DISTINCT d) FROM measured WHERE id < 0",
        "SELECT k % 2, {entries}(DISTINCT d) FILTER (WHERE d > 4 AND id < 40) FROM measured GROUP BY 1 ORDER BY 1",
        "SELECT k, {entries}(DISTINCT d) FILTER (WHERE id < 3) FROM measured GROUP BY k ORDER BY k",
        """SELECT k, {mean}(v), {entries}(DISTINCT d), {entries}(DISTINCT (d + 1) DIV 2), count(DISTINCT id)
        FROM measured GROUP BY k ORDER BY k""",
        "SELECT k, {entries}(id), count(DISTINCT d), count(DISTINCT v), sum(id) FROM measured GROUP BY k ORDER BY k",
        "SELECT {entries}(id), count(DISTINCT d), count(DISTINCT v) FROM measured WHERE id < 0",
        "SELECT k, d, {entries}(DISTINCT id % 4) FROM measured GROUP BY ROLLUP (k, d) ORDER BY k, d, 3",
        "SELECT {mean}(DISTINCT v) FROM (SELECT if(id % 2 = 0, 0.0D, -0.0D) AS v FROM measured)",
    ],
)
def test_distinct_is_the_distinct_of_spark(measured: SparkSession, query: str) -> None:
    assert_equals_stock(measured, query)


def test_a_filter_may_call_a_function_itself(measured: SparkSession) -> None:
    rows = measured.sql("""
        SELECT k, updraft.default.entries(updraft.default.add(id, 1)) FILTER (WHERE updraft.default.add(d, 1) = 1)
        FROM measured GROUP BY k ORDER BY k
    """)
    expected = measured.sql("SELECT k, count(id) FILTER (WHERE d = 0) FROM measured GROUP BY k ORDER BY k")
    assert [tuple(row) for row in rows.collect()] == [tuple(row) for row in expected.collect()]


def test_an_aggregate_is_made_where_the_rows_are_and_merged_behind_the_shuffle(measured: SparkSession) -> None:
    plan = executed_plan(measured.sql("SELECT k, updraft.default.mean(v) FROM measured GROUP BY k"))
    merge, exchange, accumulate = (plan.index(name) for name in ("FlightMerge", "Exchange hash", "FlightAccumulate"))
    assert merge < exchange < accumulate


def test_states_and_not_rows_are_shuffled(measured: SparkSession) -> None:
    frame = measured.sql("SELECT k, updraft.default.mean(v) FROM measured GROUP BY k")
    frame.collect()
    # One row of each of four groups, including the null key, from each of four tasks.
    assert metrics_of(frame, "Exchange")["shuffleRecordsWritten"] == 4 * 4
    assert metrics_of(frame, "FlightAccumulate")["pythonNumRowsReceived"] == 4 * 4


def test_an_aggregate_has_names_and_defaults(measured: SparkSession) -> None:
    rows = measured.sql("""
        SELECT updraft.default.scaled_sum(id), updraft.default.scaled_sum(factor => 3, value => id),
            updraft.default.scaled_sum(id, `offset` => 2), updraft.default.scaled_sum(value => id, `offset` => 2)
        FROM measured
    """)
    total = sum(range(1000))
    assert [tuple(row) for row in rows.collect()] == [(total, 3 * total, total + 2000, total + 2000)]


def test_a_filter_reads_the_rows_once(measured: SparkSession) -> None:
    plan = executed_plan(
        measured.sql("SELECT k, updraft.default.mean(v) FILTER (WHERE id > 1) FROM measured GROUP BY k")
    )
    assert plan.count("FlightAccumulate") == plan.count("Range (") == 1


@pytest.mark.parametrize("over", ["()", "(PARTITION BY k)", "(ORDER BY id ROWS 3 PRECEDING)"])
def test_a_window_is_refused_with_what_to_do(measured: SparkSession, over: str) -> None:
    with pytest.raises(PySparkException, match="mean cannot be called with OVER: call it with GROUP BY in a subquery"):
        measured.sql(f"SELECT updraft.default.mean(v) OVER {over} FROM measured")


def test_a_window_of_a_frame_is_refused_as_one_of_sql_is(measured: SparkSession) -> None:
    with pytest.raises(PySparkException, match="mean cannot be called with OVER"):
        measured.table("measured").select(U.call("mean", "v").over(Window.partitionBy("k")))


def test_rows_that_differ_each_time_are_not_read_for_each_aggregate(measured: SparkSession) -> None:
    rows = "(SELECT k, rand() AS v FROM measured)"
    with pytest.raises(Py4JJavaError, match="persist them first"):
        measured.sql(f"SELECT k, updraft.default.mean(v), max(v) FROM {rows} GROUP BY k").collect()
    alone = f"SELECT k, updraft.default.mean(v) FILTER (WHERE v < 2) FROM {rows} GROUP BY k"
    assert len(measured.sql(alone).collect()) == 4


def test_aggregates_of_several_subqueries_stay_apart(measured: SparkSession) -> None:
    assert_equals_stock(
        measured,
        "SELECT (SELECT {mean}(v) FROM measured), (SELECT {mean}(v + 1) FROM measured), (SELECT max(v) FROM measured)",
    )


def test_a_condition_on_a_key_is_asked_before_the_rows_are_sent(measured: SparkSession) -> None:
    groups = "SELECT id AS k, updraft.default.mean(v) AS mean FROM measured GROUP BY id"
    frame = measured.sql(f"SELECT k, mean FROM ({groups}) WHERE k = 5")
    assert [tuple(row) for row in frame.collect()] == [(5, 5.0)]
    assert metrics_of(frame, "FlightAccumulate")["pythonNumRowsReceived"] == 1
    plan = executed_plan(frame)
    assert plan.index("FlightAccumulate") < plan.index("Filter (")


def test_an_aggregate_is_an_argument_of_a_function_and_a_function_one_of_an_aggregate(measured: SparkSession) -> None:
    rows = measured.sql("""
        SELECT updraft.default.add(d, 1) AS e, updraft.default.twice(updraft.default.mean(updraft.default.twice(v)))
        FROM measured GROUP BY updraft.default.add(d, 1) ORDER BY e
    """)
    expected = measured.sql("SELECT d + 1, avg(v * 2) * 2 FROM measured GROUP BY d ORDER BY 1")
    assert [tuple(row) for row in rows.collect()] == [tuple(row) for row in expected.collect()]


def test_a_stream_is_refused_by_spark(measured: SparkSession, tmp_path: Path) -> None:
    stream = measured.readStream.format("rate").load().selectExpr("CAST(value AS DOUBLE) AS v", "value % 2 AS k")
    means = stream.groupBy("k").agg(U.call("mean", "v"))
    query = means.writeStream.format("noop").outputMode("complete").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"[Ss]treaming aggregation doesn't support"):
        query.awaitTermination(60)
