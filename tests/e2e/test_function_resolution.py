# SPDX-License-Identifier: Apache-2.0
"""Resolution of a function's name: after USE, on Spark's path, in views, and next to temporary functions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.named import CATALOG, naming_session, values
from tests.support.kinds_of_spark import needs_spark
from tests.support.paths import EXAMPLES
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, SPARK_VERSION, another_session
from tests.support.tokens import TokenFiles

_ORDER = "spark.sql.functionResolution.sessionOrder"
_PATH = "spark.sql.path.enabled"
_TEMPORARY = [
    "CREATE TEMPORARY FUNCTION rebate(price DOUBLE, percent DOUBLE DEFAULT 1) RETURNS DOUBLE RETURN -1",
    "CREATE TEMPORARY FUNCTION words(text STRING) RETURNS TABLE(word STRING) RETURN SELECT 'temporary'",
]
_CALLS = [
    "SELECT rebate(100D, 20)",
    "SELECT rebate(percent => 20, price => 100)",
    "SELECT word FROM words('a')",
    "SELECT word FROM words(text => 'a')",
]
_OF_POOL = [80.0, 80.0, "a", "a"]
_OF_SESSION = [-1.0, -1.0, "temporary", "temporary"]

has_path = pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="Spark has an order and a path since 4.2")


@pytest.fixture
def session(spark: SparkSession, deployed: LocalPool) -> Iterator[SparkSession]:
    with naming_session(spark, deployed) as naming:
        yield naming


def called(session: SparkSession) -> list[object]:
    return [value for call in _CALLS for value in values(session, call)]


def is_described(session: SparkSession) -> bool:
    """Return whether DESCRIBE FUNCTION shows the pool's functions."""
    first = [values(session, f"DESCRIBE FUNCTION {name}")[0] for name in ("rebate", "words")]
    (shown,) = {line.startswith(("rebate(price DOUBLE", "words(text STRING")) for line in first}
    return bool(shown)


def test_temporary_functions_go_before_those_of_the_current_namespace(session: SparkSession) -> None:
    needs_spark((4, 0), "functions that are made in SQL")
    session.sql("USE updraft.default")
    assert (called(session), is_described(session)) == (_OF_POOL, True)
    for statement in _TEMPORARY:
        session.sql(statement)
    assert (called(session), is_described(session)) == (_OF_SESSION, False)


@has_path
@pytest.mark.parametrize(("order", "found"), [("first", _OF_SESSION), ("second", _OF_SESSION), ("last", _OF_POOL)])
def test_temporary_functions_come_when_the_session_says(session: SparkSession, order: str, found: list[object]) -> None:
    session.conf.set(_ORDER, order)
    session.sql("USE updraft.default")
    for statement in _TEMPORARY:
        session.sql(statement)
    assert (called(session), is_described(session)) == (found, found == _OF_POOL)


@has_path
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("system.builtin, updraft.default", _OF_POOL),
        ("updraft.other, system.session, system.builtin", _OF_POOL),
        ("system.builtin, spark_catalog.default, updraft.default, system.session", _OF_POOL),
        ("system.session, updraft.default, system.builtin", _OF_SESSION),
    ],
)
def test_functions_are_found_on_the_path_in_its_order(session: SparkSession, path: str, found: list[object]) -> None:
    for statement in _TEMPORARY:
        session.sql(statement)
    session.conf.set(_PATH, "true")
    session.sql(f"SET PATH = {path}")
    assert (called(session), is_described(session)) == (found, found == _OF_POOL)


@has_path
def test_what_is_not_on_the_path_is_not_found(session: SparkSession) -> None:
    session.conf.set(_PATH, "true")
    session.sql("USE updraft.default")
    session.sql("SET PATH = system.builtin, system.session")
    for call in _CALLS:
        with pytest.raises(PySparkException, match=r"rebate|words"):
            session.sql(call)


@has_path
def test_table_functions_that_no_pool_has_are_found_behind_pools(session: SparkSession) -> None:
    session.sql("CREATE TEMPORARY FUNCTION one() RETURNS TABLE(word STRING) RETURN SELECT 'one'")
    session.sql("CREATE FUNCTION spark_catalog.default.two() RETURNS TABLE(word STRING) RETURN SELECT 'two'")
    session.conf.set(_PATH, "true")
    session.sql("SET PATH = updraft.default, system.session, system.builtin, spark_catalog.default")
    try:
        assert values(session, "SELECT id FROM range(2)") == [0, 1]
        assert values(session, "SELECT col FROM VALUES (array(1, 2)) AS t(a), LATERAL explode(a)") == [1, 2]
        assert values(session, "SELECT word FROM one()") == ["one"]
        assert values(session, "SELECT word FROM two()") == ["two"]
    finally:
        session.sql("DROP FUNCTION spark_catalog.default.two")


@has_path
def test_a_catalog_behind_the_place_of_a_function_is_not_loaded(session: SparkSession) -> None:
    session.conf.set("spark.sql.catalog.broken", "no.such.Catalog")
    session.conf.set(_PATH, "true")
    session.sql("SET PATH = system.builtin, updraft.default, broken.default")
    assert values(session, "SELECT upper('a')") == ["A"]
    assert called(session) == _OF_POOL
    with pytest.raises(Py4JJavaError, match=r"no\.such\.Catalog"):
        session.sql("SELECT no_function(1)")


def test_a_view_needs_no_catalog_whose_functions_it_does_not_call(spark: SparkSession, session: SparkSession) -> None:
    needs_spark((4, 0), "queries without SELECT")
    session.sql("USE updraft.default")
    session.sql("CREATE VIEW spark_catalog.default.plain AS SELECT id FROM range(2)")
    try:
        with another_session(spark) as without_pools:
            assert values(without_pools, "FROM spark_catalog.default.plain") == [0, 1]
    finally:
        session.sql("DROP VIEW spark_catalog.default.plain")


def test_a_view_has_the_functions_of_the_namespace_in_which_it_was_made(session: SparkSession) -> None:
    needs_spark((4, 0), "queries without SELECT")
    session.sql("USE updraft.default")
    for number, call in enumerate(_CALLS):
        session.sql(f"CREATE TEMPORARY VIEW view{number} AS {call}")
    session.sql("USE spark_catalog.default")
    assert [value for number in range(len(_CALLS)) for value in values(session, f"FROM view{number}")] == _OF_POOL


def test_a_view_calls_the_pool_of_the_session_that_reads_it(session: SparkSession) -> None:
    session.sql("CREATE VIEW spark_catalog.default.priced AS SELECT updraft.default.rebate(100, 20) AS price")
    try:
        assert values(session, "SELECT price FROM spark_catalog.default.priced") == [80.0]
        session.conf.unset(ENDPOINT)
        with pytest.raises(PySparkException, match="no pool is named default"):
            session.sql("SELECT price FROM spark_catalog.default.priced")
    finally:
        session.sql("DROP VIEW spark_catalog.default.priced")


def test_a_view_asks_a_guarded_pool_with_the_token_of_the_session(session: SparkSession, tmp_path: Path) -> None:
    tokens = TokenFiles(tmp_path)
    pool = LocalPool(arguments=("--functions", "shop", "--token-file", str(tokens.service)))
    with mock.patch.dict(os.environ, PYTHONPATH=str(EXAMPLES)), pool:
        session.conf.set("spark.updraft.udf.tokenFile", str(tokens.client))
        session.conf.set(f"{CATALOG}.pool.guarded", pool.tcp_endpoint)
        session.sql("CREATE TEMPORARY VIEW priced AS SELECT updraft.guarded.discount(100, 20) AS price")
        assert values(session, "SELECT price FROM priced") == values(
            session, "SELECT updraft.guarded.discount(100, 20)"
        )


def test_functions_that_spark_calls_itself_are_not_looked_for_in_a_pool(session: SparkSession) -> None:
    session.sql("USE updraft.default")
    session.conf.set("spark.updraft.udf.connectTimeout", "1s")
    session.conf.set(ENDPOINT, "grpc://127.0.0.1:1")
    assert session.range(1, 4).select(F.product("id")).collect()[0][0] == 6.0


@pytest.mark.parametrize(
    ("namespace", "name"), [("spark_catalog.default", "updraft.default.rebate"), ("updraft.default", "rebate")]
)
def test_functions_that_are_made_in_sql_call_none_of_a_pool(session: SparkSession, namespace: str, name: str) -> None:
    needs_spark((4, 0), "functions that are made in SQL")
    session.sql(f"USE {namespace}")
    with pytest.raises(PySparkException, match=r"IDENTIFIER_TOO_MANY_NAME_PARTS|ROUTINE_NOT_FOUND"):
        session.sql(f"CREATE TEMPORARY FUNCTION half(price DOUBLE) RETURNS DOUBLE RETURN {name}(price, 50D)")
