# SPDX-License-Identifier: Apache-2.0
"""A registered function whose arguments are the same in all rows is called once per query.

`stamp` returns another value for each row of each call, so rows with one value share one call.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.named import values
from tests.support.flight import pool_status
from tests.support.pool import LocalPool
from tests.support.spark import executed_plan
from tests.support.waiting import until
from updraft.spark import functions as U


def _rows_of(pool: LocalPool, function: str) -> int:
    """Return the number of rows with which a function has been called so far."""
    found = re.search(rf'^updraft_rows_total\{{function="{function}"\}} (\S+)$', pool.page("/metrics")[0], re.MULTILINE)
    return int(float(found[1])) if found else 0


def test_one_call_with_one_row_serves_all_rows_of_all_tasks(named: SparkSession, deployed: LocalPool) -> None:
    before = _rows_of(deployed, "stamp")
    rows = named.range(0, 1000, 1, 4).select("id", U.call("stamp", F.lit("a")).alias("stamp")).collect()
    assert [row.id for row in rows] == list(range(1000))
    assert len({row.stamp for row in rows}) == 1
    until("the pool has counted the call", lambda: _rows_of(deployed, "stamp") > before)
    assert _rows_of(deployed, "stamp") == before + 1


def test_expressions_of_constants_are_constants(named: SparkSession) -> None:
    query = "SELECT count(DISTINCT updraft.default.stamp(concat('a', 'b', CAST(1 + 1 AS STRING)))) FROM range(100)"
    assert values(named, query) == [1]
    beside = "SELECT id, updraft.default.rebate(id, 50), updraft.default.rebate(100) FROM range(3)"
    assert values(named, beside) == [(0, 0.0, 50.0), (1, 0.5, 50.0), (2, 1.0, 50.0)]
    assert values(named, "SELECT id FROM range(100) WHERE id = updraft.default.add(2, 3)") == [5]


def test_each_query_has_a_call_of_its_own(named: SparkSession) -> None:
    query = "SELECT first(updraft.default.stamp('a')) FROM range(10)"
    assert values(named, query) != values(named, query)


def test_columns_and_functions_that_are_not_deterministic_are_called_with_each_row(named: SparkSession) -> None:
    for call in ("stamp(CAST(id AS STRING))", "new_stamp('a')", "stamp(CAST(floor(rand() * 0) AS STRING))"):
        assert len(set(values(named, f"SELECT updraft.default.{call} FROM range(100)"))) == 100


def test_explain_calls_nothing(named: SparkSession, deployed: LocalPool) -> None:
    before = _rows_of(deployed, "rebate")
    frame = named.sql("SELECT id, updraft.default.rebate(100, 20) AS less FROM range(10)")
    frame.explain("extended")
    assert f"FlightConstant [rebate()], endpoint={deployed.tcp_endpoint}" in executed_plan(frame)
    assert "FlightConstant" in values(named, "EXPLAIN SELECT id, updraft.default.rebate(100, 20) FROM range(10)")[0]
    assert _rows_of(deployed, "rebate") == before
    assert {row.less for row in frame.collect()} == {80.0}
    # The pool counts in the order in which exchanges end, and no other was running before.
    until("the pool has counted the call", lambda: _rows_of(deployed, "rebate") > before)
    assert _rows_of(deployed, "rebate") == before + 1


def test_the_error_of_a_constant_is_that_of_a_column(named: SparkSession) -> None:
    def error(argument: str) -> str:
        with pytest.raises(PySparkException) as raised:
            values(named, f"SELECT updraft.default.reciprocal({argument}) FROM range(3)")
        assert type(raised.value).__name__ == "PythonException"
        return re.sub(r"stage \d+\.\d+|TID \d+|task \d+", "", str(raised.value)).split("Driver stacktrace")[0]

    assert "ZeroDivisionError" in error("0")
    assert error("0") == error("id * 0")


def test_a_constant_of_no_rows_has_no_error(named: SparkSession) -> None:
    assert values(named, "SELECT updraft.default.reciprocal(0) FROM range(10) WHERE id < rand() - 2") == []


def test_nulls_and_policies_are_those_of_a_call(named: SparkSession) -> None:
    assert (
        values(named, "SELECT updraft.default.safe_reciprocal(0), updraft.default.text.upper(null) FROM range(2)")
        == [(None, None)] * 2
    )
    assert values(named, "SELECT updraft.default.total(array(1, 2, 3)) FROM range(2)") == [6, 6]


def test_one_row_is_called_as_it_is(named: SparkSession) -> None:
    assert "FlightConstant" not in executed_plan(named.sql("SELECT updraft.default.add(1, 2)"))
    assert values(named, "SELECT updraft.default.add(1, 2)") == [3]


def test_a_query_that_is_cancelled_during_the_call_ends(named: SparkSession, deployed: LocalPool) -> None:
    frame = named.range(10).select(U.call("naps", F.lit(60.0)))
    with ThreadPoolExecutor(1) as threads:
        collected = threads.submit(frame.collect)
        until("the function is called", lambda: pool_status(deployed.tcp_address).workers_busy > 0)
        named.sparkContext.cancelAllJobs()
        with pytest.raises(Py4JJavaError, match=r"SPARK_JOB_CANCELLED|Job \d+ cancelled"):
            collected.result(timeout=30)
