# SPDX-License-Identifier: Apache-2.0
"""Two pools with different functions, each a catalog namespace, from SQL, the DataFrame API and Spark Connect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from unittest import mock

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.e2e.applications import deployed_elsewhere
from tests.e2e.applications.running import differences
from tests.e2e.named import CATALOG, values
from tests.support.kinds_of_spark import needs_spark
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, another_session
from updraft.spark import functions as U


@pytest.fixture(scope="module")
def elsewhere(stock_only: bool) -> Iterator[LocalPool]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(REPOSITORY)),
        LocalPool(arguments=("--functions", deployed_elsewhere.__name__)) as pool,
    ):
        yield pool


@pytest.fixture(scope="module")
def session(spark: SparkSession, deployed: LocalPool, elsewhere: LocalPool) -> Iterator[SparkSession]:
    with another_session(spark) as session:
        session.conf.set(ENDPOINT, deployed.tcp_endpoint)
        session.conf.set(CATALOG, "io.updraft.spark.FunctionCatalog")
        session.conf.set(f"{CATALOG}.pool.elsewhere", elsewhere.tcp_endpoint)
        yield session


@pytest.fixture(scope="module")
def over_connect(deployed: LocalPool, elsewhere: LocalPool) -> Mapping[str, str]:
    return differences("two_pools", deployed.tcp_endpoint, elsewhere.tcp_endpoint)


def test_functions_of_one_name_answer_as_their_own_pools_do(session: SparkSession) -> None:
    query = """
        SELECT updraft.default.add(id, 1), updraft.elsewhere.add(id, 1), updraft.elsewhere.only_elsewhere(id)
        FROM range(3)
    """
    assert values(session, query) == [(1, 1001, 0), (2, 1002, -1), (3, 1003, -2)]


def test_a_call_of_a_call_goes_from_pool_to_pool(session: SparkSession) -> None:
    frame = session.range(2).select(U.call("add", U.call("add", "id", "id", pool="elsewhere"), "id"))
    assert [row[0] for row in frame.collect()] == [1000, 1003]


def test_a_pool_is_chosen_from_python(session: SparkSession) -> None:
    frame = session.range(2).select(
        U.call("add", "id", "id"),
        U.call("add", "id", "id", pool="elsewhere"),
        U.call("add", "id", "id", pool="elsewhere", version="1"),
        U.call("only_elsewhere", "id", pool="elsewhere"),
    )
    assert [tuple(row) for row in frame.collect()] == [(0, 1000, 1000, 0), (2, 1002, 1002, -1)]


def test_each_pool_shows_its_own_functions(session: SparkSession) -> None:
    assert values(session, "SHOW NAMESPACES IN updraft") == ["default", "elsewhere"]
    assert values(session, "SHOW USER FUNCTIONS IN updraft.elsewhere") == [
        f"updraft.elsewhere.{name}" for name in ("add", "echo", "only_elsewhere")
    ]
    here = values(session, "SHOW USER FUNCTIONS IN updraft.default")
    assert "updraft.default.add" in here
    assert "updraft.default.only_elsewhere" not in here
    described = values(session, "DESCRIBE FUNCTION updraft.elsewhere.add")
    assert "A sum of another pool, which is higher by a thousand." in described


@pytest.mark.parametrize("call", ["default.only_elsewhere(id)", "elsewhere.rebate(id)"])
def test_a_function_of_another_pool_is_not_found(session: SparkSession, call: str) -> None:
    with pytest.raises(AnalysisException, match=call.partition("(")[0].rpartition(".")[2]):
        session.sql(f"SELECT updraft.{call} FROM range(3)")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", ["version", "pool", "both", "names", "SQL", "unknown version", "unknown in this pool"])
def test_versions_and_pools_are_chosen_over_spark_connect(over_connect: Mapping[str, str], case: str) -> None:
    if case == "names":
        needs_spark((4, 0), "rule of an extension before it names columns of its API")
    assert over_connect[case] == ""
