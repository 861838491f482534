# SPDX-License-Identifier: Apache-2.0
"""One function, one answer: Spark gives the same as the other callers in tests/contract/test_one_answer.py."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.applications.running import differences
from tests.support.example_functions import AGGREGATE_FAILURES, FAILURES, TABLE_FAILURES, examples_pool, of_kind
from updraft.functions import Kind

_FAILURES = {**FAILURES, **TABLE_FAILURES, **AGGREGATE_FAILURES}

_PYTHON = "PythonException"
_ANALYSIS = "AnalysisException"
# Spark Connect clients 3.5 do not know the class of such an error.
_TASK = ("Py4JJavaError", "SparkException", "SparkConnectGrpcException")

# Spark checks a call against the signature before there are tasks, with its own messages.
_CLASSES = {
    "the function raises": _PYTHON,
    "the model raises": _PYTHON,
    "a null": _TASK,
    "another type": _ANALYSIS,
    "a model's other type": _ANALYSIS,
    "a column too few": _ANALYSIS,
    "a column too many": _ANALYSIS,
    "a table function raises": _PYTHON,
    "a table function's null": _TASK,
    "an aggregate raises": _PYTHON,
    "an aggregate's null": _TASK,
}
_WORDS = {
    "another type": "argument words of reading_minutes is BIGINT, not DOUBLE",
    "a model's other type": 'requires the "ARRAY<DOUBLE>" type',
    "a column too few": "word_at was called with 1 arguments",
    "a column too many": "initials was called with 2 arguments",
}

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("session", ["classic", "Connect"]),
]


@pytest.fixture(scope="module")
def found(stock_only: bool) -> Mapping[str, str]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with examples_pool() as pool:
        return differences("one_answer", pool.tcp_endpoint)


@pytest.mark.parametrize("how", ["SQL", "DataFrame API"])
@pytest.mark.parametrize("name", [*of_kind(Kind.SCALAR), *of_kind(Kind.AGGREGATE)])
def test_a_function_answers_as_its_author_wrote_it(found: Mapping[str, str], name: str, how: str, session: str) -> None:
    assert found[f"{name}, {how}, {session}"] == ""


@pytest.mark.parametrize("how", ["SQL", "DataFrame API"])
@pytest.mark.parametrize("name", of_kind(Kind.TABLE))
def test_a_table_function_gives_the_rows_of_its_author(
    found: Mapping[str, str], name: str, how: str, session: str
) -> None:
    assert found[f"{name}, {how}, {session}"] == ""


@pytest.mark.parametrize("how", ["SQL", "DataFrame API"])
@pytest.mark.parametrize("case", _FAILURES)
def test_an_error_takes_the_form_that_spark_has_for_it(
    found: Mapping[str, str], case: str, how: str, session: str
) -> None:
    name, _, text = found[f"{case}, {how}, {session}"].partition(": ")
    assert name in _CLASSES[case]
    assert _WORDS.get(case, _FAILURES[case].says) in text
