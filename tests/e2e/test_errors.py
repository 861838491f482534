# SPDX-License-Identifier: Apache-2.0
"""A function that fails says on a pool what it says on stock PySpark, and the next query runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides


def _raising(error: BaseException) -> Callable[[Any], Any]:
    def fail_on_purpose(value: Any) -> Any:
        raise error

    return fail_on_purpose


def _killed_by(number: int) -> Callable[[Any], Any]:
    def die(value: Any) -> Any:
        os.kill(os.getpid(), number)
        return value

    return die


def _of_one_column(column: Callable[[], Column]) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        return spark.range(0, 100, 1, 2).select(column().alias("x"))

    return query


def _user_lines(error: Exception | None) -> list[str]:
    """The traceback's lines that speak of the user's code and of what it raised; not those of Spark's own files."""
    text = str(error)
    return [
        line.strip()
        for line in text.splitlines()
        if not line.startswith(("\tat ", "  File ", "    ")) or "fail_on_purpose" in line or "test_errors" in line
    ]


WRAPPERS: dict[str, Callable[[Callable[[Any], Any]], Callable[[str], Column]]] = {
    "pickled": lambda f: F.udf(f, "bigint", useArrow=False),
    "arrow_optimised": lambda f: F.udf(f, "bigint", useArrow=True),
    "pandas": lambda f: F.pandas_udf(f, "bigint", F.PandasUDFType.SCALAR),
    "arrow": lambda f: F.arrow_udf(f, "bigint", F.ArrowUDFType.SCALAR),
}
ERRORS: dict[str, BaseException] = {
    "plain": ValueError("a value that nobody likes"),
    "key_error": KeyError("missing"),
    "non_ascii": RuntimeError("žluťoučký kůň 🐎"),
    "empty": Exception(),
    "exit": SystemExit(3),
    "stop": StopIteration("early"),
}


@pytest.fixture(autouse=True)
def the_pool_lives_on(sides: Sides) -> Iterator[None]:
    """After each failure the pool answers the next query."""
    yield
    query = _of_one_column(lambda: WRAPPERS["arrow"](lambda a: pa.compute.add(a, 1))("id"))
    answer = sides.updraft(query)
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)


# Every failure costs stock its workers, so that not every kind meets every error.
_KINDS_AND_ERRORS = [*(("pickled", error) for error in ERRORS), *((kind, "plain") for kind in WRAPPERS)]


@pytest.mark.parametrize(("kind", "error"), sorted(set(_KINDS_AND_ERRORS)))
def test_an_exception_reads_as_on_stock(sides: Sides, kind: str, error: str) -> None:
    query = _of_one_column(lambda: WRAPPERS[kind](_raising(ERRORS[error]))("id"))
    stock, ours = sides.stock(query), sides.updraft(query)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error)
    sides.assert_ran_on_the_pool(ours)
    if isinstance(stock.error, PythonException):
        assert _user_lines(ours.error) == _user_lines(stock.error)


def test_a_long_message_keeps_its_end(sides: Sides) -> None:
    # The contract cuts a traceback to 64 KiB from its end, so that no reply is larger than a pool allows.
    message = "long " * 20_000 + "and over"
    query = _of_one_column(lambda: WRAPPERS["pickled"](_raising(RuntimeError(message)))("id"))
    error = sides.updraft(query).error
    assert isinstance(error, PythonException)
    assert "long and over" in str(error)
    assert str(error).count("long ") > 10_000


def test_the_traceback_names_the_users_line(sides: Sides) -> None:
    query = _of_one_column(lambda: WRAPPERS["pickled"](_raising(ValueError("here")))("id"))
    error = sides.updraft(query).error
    assert isinstance(error, PythonException)
    assert "fail_on_purpose" in str(error)
    assert "ValueError: here" in str(error)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT], ids=lambda number: number.name)
@pytest.mark.parametrize("kind", ["pickled", "arrow"])
def test_a_function_that_kills_its_worker_fails_in_words(sides: Sides, kind: str, number: signal.Signals) -> None:
    query = _of_one_column(lambda: WRAPPERS[kind](_killed_by(number))("id"))
    error = sides.updraft(query).error
    assert error is not None
    if not sides.compares_stock_with_itself:
        assert number.name in str(error)


BAD_RESULTS: dict[str, Callable[[], Column]] = {
    "pandas_too_short": lambda: F.pandas_udf(lambda s: s.head(1), "bigint", F.PandasUDFType.SCALAR)("id"),
    "pandas_too_long": lambda: F.pandas_udf(lambda s: pd.concat([s, s]), "bigint", F.PandasUDFType.SCALAR)("id"),
    "pandas_not_a_series": lambda: F.pandas_udf(lambda s: 1, "bigint", F.PandasUDFType.SCALAR)("id"),
    "pandas_wrong_type": lambda: F.pandas_udf(lambda s: s.astype(str) + "x", "bigint", F.PandasUDFType.SCALAR)("id"),
    "pandas_missing_field": lambda: F.pandas_udf(
        lambda s: pd.DataFrame({"a": s}), "a bigint, b bigint", F.PandasUDFType.SCALAR
    )("id"),
    "arrow_too_short": lambda: F.arrow_udf(lambda a: a.slice(0, 1), "bigint", F.ArrowUDFType.SCALAR)("id"),
    "arrow_not_an_array": lambda: F.arrow_udf(lambda a: "no", "bigint", F.ArrowUDFType.SCALAR)("id"),
    "arrow_wrong_type": lambda: F.arrow_udf(lambda a: pa.array(["x"] * len(a)), "bigint", F.ArrowUDFType.SCALAR)("id"),
    "arrow_optimised_wrong_type": lambda: F.udf(lambda x: "text", "bigint", useArrow=True)("id"),
    "iterator_too_short": lambda: F.arrow_udf(lambda it: iter(()), "bigint", F.ArrowUDFType.SCALAR_ITER)("id"),
    "iterator_too_long": lambda: F.arrow_udf(
        lambda it: (pa.concat_arrays([a, a]) for a in it), "bigint", F.ArrowUDFType.SCALAR_ITER
    )("id"),
}


@pytest.mark.parametrize("result", BAD_RESULTS)
def test_a_result_that_does_not_fit_fails_as_on_stock(sides: Sides, result: str) -> None:
    query = _of_one_column(BAD_RESULTS[result])
    stock, ours = sides.stock(query), sides.updraft(query)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error), ours.error
    assert _user_lines(ours.error)[-1:] == _user_lines(stock.error)[-1:]


MAP_RESULTS: dict[str, Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]] = {
    "wrong_schema": lambda batches: (pa.RecordBatch.from_pydict({"other": ["x"]}) for _ in batches),
    "not_a_batch": lambda batches: (1 for _ in batches),
}


@pytest.mark.parametrize("result", MAP_RESULTS)
def test_a_mapped_batch_that_does_not_fit_fails_as_on_stock(sides: Sides, result: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        return spark.range(0, 100, 1, 2).mapInArrow(MAP_RESULTS[result], "id bigint")

    stock, ours = sides.stock(query), sides.updraft(query)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error), ours.error


def test_a_pickled_result_of_another_type_becomes_what_stock_makes_of_it(sides: Sides) -> None:
    sides.assert_same(_of_one_column(lambda: F.udf(lambda x: str(x), "bigint", useArrow=False)("id")))
    sides.assert_same(_of_one_column(lambda: F.udf(lambda x: x * 1.5, "int", useArrow=False)("id")))


def test_hidden_tracebacks_stay_hidden(sides: Sides) -> None:
    confs = {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"}
    query = _of_one_column(lambda: WRAPPERS["pickled"](_raising(ValueError("only this")))("id"))
    stock, ours = sides.stock(query, confs), sides.updraft(query, confs=confs)
    assert "fail_on_purpose" not in str(ours.error)
    assert _user_lines(ours.error) == _user_lines(stock.error)


def test_a_quiet_exit_of_the_worker_is_an_error(sides: Sides) -> None:
    query = _of_one_column(lambda: WRAPPERS["pickled"](lambda _: os._exit(0))("id"))
    assert sides.updraft(query).error is not None
