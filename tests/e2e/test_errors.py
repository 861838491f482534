# SPDX-License-Identifier: Apache-2.0
"""A failing function gives the same error on a pool as on stock PySpark, and the next query runs."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.errors import CRASHES, LATE, MISSING_MODULES, PLAIN, QUIET_EXIT, RAISED, ErrorCase, told
from tests.e2e.kinds import KINDS, takes_the_way_of_another
from tests.e2e.kinds.kind import Kind
from tests.e2e.kinds.seen import same
from tests.e2e.sides import Query, Sides
from tests.support.kinds_of_spark import needs_spark

# Small batches, so that a few rows in one task cause a second call; each failure costs stock its workers.
_CONFS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "2"}
# One kind for each way in which PySpark's worker runs functions.
_WAYS = (
    "udf_pickled",
    "arrow_udf",
    "pandas_udf_iterator",
    "map_in_arrow",
    "grouped_pandas",
    "cogroup_arrow",
    "aggregate_arrow",
    "window_pandas_bounded",
    "udtf_lateral",
    "udtf_arrow_table",
)
_STEP = 3
_BY_WAY = [kind for kind in KINDS if kind.name in _WAYS]
_CHANGED = next(kind for kind in KINDS if kind.name == "udf_arrow")


def _query(kind: Kind, function: Any) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        return kind.apply(spark.range(0, 12, 1, 1).withColumn("k", F.col("id") % 4), function)

    return query


def _failing(kind: Kind, error: ErrorCase) -> Query:
    return _query(kind, kind.function(error.change()))


def _each(kinds: list[Kind], errors: list[ErrorCase]) -> list[Any]:
    return [_pair(kind, error) for kind in kinds for error in errors]


def _in_turn(kinds: list[Kind], errors: list[ErrorCase]) -> list[Any]:
    """Return each kind with every third error, and vice versa, because one handler of PySpark's worker reports all."""
    return [_pair(kind, error) for i, kind in enumerate(kinds) for error in errors[i % _STEP :: _STEP]]


def _pair(kind: Kind, error: ErrorCase) -> Any:
    return pytest.param(kind, error, id=f"{kind.name}-{error.name}", marks=_marks(kind))


def _marks(kind: Kind) -> list[pytest.MarkDecorator]:
    return [pytest.mark.campaign] if takes_the_way_of_another(kind) else []


@pytest.fixture(autouse=True, scope="module")
def the_pool_lives_on(sides: Sides) -> Iterator[None]:
    """Check the pool after the last test; every other test uses the pool on which the previous one failed."""
    yield
    answer = sides.updraft(_query(_CHANGED, same))
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)


@pytest.mark.matrix("raised")
@pytest.mark.parametrize(("kind", "error"), [*_each(KINDS, [PLAIN, LATE]), *_in_turn(_BY_WAY, RAISED)])
def test_an_exception_reads_as_on_stock(sides: Sides, kind: Kind, error: ErrorCase) -> None:
    query = _failing(kind, error)
    stock, ours = sides.stock(query, _CONFS), sides.updraft(query, confs=_CONFS)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error)
    sides.assert_ran_on_the_pool(ours)
    if isinstance(stock.error, PythonException):
        assert told(ours.error) == told(stock.error)


@pytest.mark.matrix("wrong results")
@pytest.mark.parametrize(
    ("kind", "result"),
    [
        pytest.param(kind, result, id=f"{kind.name}-{result}", marks=_marks(kind))
        for kind in KINDS
        for result in kind.wrong
    ],
)
def test_a_result_that_does_not_fit_means_what_it_means_on_stock(sides: Sides, kind: Kind, result: str) -> None:
    query = _query(kind, kind.wrong[result])
    stock, ours = sides.stock(query, _CONFS), sides.updraft(query, confs=_CONFS)
    assert type(ours.error) is type(stock.error), ours.error
    sides.assert_ran_on_the_pool(ours)
    # Stock accepts some of them.
    assert ours.rows == stock.rows
    if isinstance(stock.error, PythonException):
        assert told(ours.error) == told(stock.error)


@pytest.mark.matrix("crashes")
@pytest.mark.parametrize(("kind", "error"), [*_each(_BY_WAY, CRASHES[:1]), *_each([_CHANGED], CRASHES[1:])])
def test_a_function_that_kills_its_worker_fails_in_words(sides: Sides, kind: Kind, error: ErrorCase) -> None:
    query = _failing(kind, error)
    stock, ours = sides.stock(query, _CONFS), sides.updraft(query, confs=_CONFS)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error)
    if not sides.compares_stock_with_itself:
        assert error.name in str(ours.error)


def test_a_quiet_exit_of_the_worker_is_an_error(sides: Sides) -> None:
    assert sides.updraft(_failing(_CHANGED, QUIET_EXIT), confs=_CONFS).error is not None


@pytest.mark.matrix("unpicklable")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_function_that_cannot_be_pickled_fails_as_on_stock(sides: Sides, kind: Kind) -> None:
    lock = threading.Lock()

    def locked(values: Any) -> Any:
        with lock:
            return values

    query = _query(kind, kind.function(locked))
    stock, ours = sides.stock(query), sides.updraft(query)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error)
    assert str(ours.error) == str(stock.error)


@pytest.mark.parametrize(("function", "result"), [(str, "bigint"), (lambda x: x * 1.5, "int")], ids=["text", "double"])
def test_a_pickled_result_of_another_type_becomes_what_stock_makes_of_it(
    sides: Sides, function: Any, result: str
) -> None:
    column = F.udf(function, result, useArrow=False)("id").alias("x")
    sides.assert_same(lambda spark: spark.range(100).select(column))


@pytest.mark.parametrize("hidden", ["false", "true"], ids=["traceback", "hidden-traceback"])
@pytest.mark.parametrize("error", MISSING_MODULES, ids=lambda error: error.name)
def test_a_module_that_the_pool_lacks_is_explained(sides: Sides, error: ErrorCase, hidden: str) -> None:
    if sides.compares_stock_with_itself:
        pytest.skip("stock has no pool")
    confs = {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": hidden}
    text = str(sides.updraft(_failing(_CHANGED, error), confs=confs).error)
    assert "ModuleNotFoundError: No module named 'a_module_" in text
    assert text.count(f"It ran on the Updraft pool at {platform.node()}, where functions import from") == 1
    assert "spark.submit.pyFiles" in text


def test_hidden_tracebacks_stay_hidden(sides: Sides) -> None:
    needs_spark((4, 0), "hideTraceback")
    confs = {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"}
    query = _failing(_CHANGED, PLAIN)
    stock, ours = sides.stock(query, confs), sides.updraft(query, confs=confs)
    assert "fail_on_purpose" not in str(ours.error)
    assert told(ours.error) == told(stock.error)
