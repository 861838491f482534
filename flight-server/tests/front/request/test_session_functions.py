# SPDX-License-Identifier: Apache-2.0
"""Session functions that a pool runs; the front decides before it asks for a worker."""

import re
from pathlib import Path
from typing import Any

import pytest

from updraft.errors import FunctionRefusedError, ProtocolError, VersionMismatchError
from updraft.v1.exchange_pb2 import SessionFunction
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import check_session_function

OPEN = Capabilities((), session_functions_allowed=True, python_version="3.11.9", pyspark_version="4.3.0")
CLOSED = Capabilities((), session_functions_allowed=False, python_version="3.11.9", pyspark_version="4.3.0")
WITHOUT_PYSPARK = Capabilities((), session_functions_allowed=True, python_version="3.11.9", pyspark_version="")


def function(**changes: Any) -> SessionFunction:
    return SessionFunction(**{"python_version": "3.11", "spark_version": "4.3.1", **changes})


def test_a_function_of_the_same_minor_versions_runs() -> None:
    check_session_function(function(environment={"TZ": "UTC"}, user_environment={"MODEL": "large"}), OPEN)


def test_a_pool_whose_operator_has_not_opted_in_runs_none() -> None:
    with pytest.raises(FunctionRefusedError, match="--session-functions unsigned or signed"):
        check_session_function(function(), CLOSED)


def test_a_pool_without_pyspark_runs_none() -> None:
    with pytest.raises(FunctionRefusedError, match="no pyspark"):
        check_session_function(function(), WITHOUT_PYSPARK)


@pytest.mark.parametrize("version", ["3.9", "3.13", "2.7"])
def test_another_python_is_refused_naming_both(version: str) -> None:
    with pytest.raises(VersionMismatchError, match=rf"Python {version}.*Python 3\.11"):
        check_session_function(function(python_version=version), OPEN)


def test_a_function_without_a_version_is_refused() -> None:
    with pytest.raises(VersionMismatchError, match="unnamed version"):
        check_session_function(function(python_version=""), OPEN)


def test_a_digest_of_another_length_is_refused() -> None:
    check_session_function(function(function_sha256=bytes(32)), OPEN)
    with pytest.raises(ProtocolError, match="function_sha256 has 33 bytes: expected 32, or none"):
        check_session_function(function(function_sha256=bytes(33)), OPEN)


def test_another_pyspark_is_refused_naming_both() -> None:
    with pytest.raises(VersionMismatchError, match=r"pyspark 3\.5\.1.*pyspark 4\.3\.0"):
        check_session_function(function(spark_version="3.5.1"), OPEN)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "MODEL"])
def test_an_environment_variable_beyond_the_list_is_refused(name: str) -> None:
    with pytest.raises(FunctionRefusedError, match=name):
        check_session_function(function(environment={name: "x", "TZ": "UTC"}), OPEN)


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "SPARK_HOME", "1X", "", "A=B"])
def test_a_variable_that_is_not_the_users_to_set_is_refused(name: str) -> None:
    with pytest.raises(FunctionRefusedError, match="may not set"):
        check_session_function(function(user_environment={name: "x"}), OPEN)


def test_the_variables_of_worker_exchanges_are_accepted() -> None:
    workers = Path(__file__).parents[4] / "spark-connector/spark/src/main/scala/io/updraft/spark/workers"
    listed = (
        (workers / "WorkerRequests.scala").read_text().partition("val SessionVariables = Set(")[2].partition(")")[0]
    )
    names = re.findall(r'"(\w+)"', listed)
    assert "TZ" in names
    check_session_function(function(environment=dict.fromkeys(names, "")), OPEN)
