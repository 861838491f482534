# SPDX-License-Identifier: Apache-2.0
"""Failure of a row: the call fails, the result is null, or it is a struct of value and error."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from updraft.errors import ProtocolError, UserError
from updraft.functions import Arrow, function
from updraft.testing import call


def inverse(x: float) -> float:
    return 1 / x


async def awaited(x: float) -> float:
    return 1 / x


def columns(x: Arrow[float]) -> Arrow[float]:
    if pc.any(pc.equal(x, 0.0)).as_py():
        raise ZeroDivisionError("float division by zero")
    return pc.divide(1.0, x)


FORMS = [inverse, awaited, columns]
VALUES = [1.0, 0.0, 2.0, 4.0, 0.0]


@pytest.mark.parametrize("code", FORMS)
def test_a_failure_fails_the_call_where_nothing_else_is_said(code: Any) -> None:
    with pytest.raises(UserError, match="ZeroDivisionError"):
        call(function(code), VALUES)


@pytest.mark.parametrize("code", FORMS)
def test_a_row_that_fails_is_null_and_the_others_have_their_results(code: Any) -> None:
    results = call(function(on_error="null")(code), VALUES)
    assert results.to_pylist() == [1.0, None, 0.5, 0.25, None]


@pytest.mark.parametrize("code", FORMS)
def test_a_row_that_fails_has_its_error_beside_it(code: Any) -> None:
    results = call(function(on_error="struct")(code), VALUES)
    error = "ZeroDivisionError: float division by zero"
    values = [(row["value"], row["error"]) for row in results.to_pylist()]
    assert values == [(1.0, None), (None, error), (0.5, None), (0.25, None), (None, error)]


@pytest.mark.parametrize("code", FORMS)
def test_rows_that_all_fail_are_results_of_the_same_type(code: Any) -> None:
    assert call(function(on_error="null")(code), [0.0, 0.0]).equals(pa.nulls(2, pa.float64()))


@pytest.mark.parametrize("code", FORMS)
def test_no_rows_have_no_failures(code: Any) -> None:
    assert call(function(on_error="struct")(code), []).type == pa.struct({"value": pa.float64(), "error": pa.string()})


def stops(x: float) -> float:
    return next(iter([x] if x else []))


def test_the_end_of_an_iterator_is_a_failure_like_any_other() -> None:
    results = call(function(on_error="struct")(stops), [1.0, 0.0, 2.0, 0.0])
    values = [(row["value"], row["error"]) for row in results.to_pylist()]
    assert values == [(1.0, None), (None, "StopIteration"), (2.0, None), (None, "StopIteration")]
    with pytest.raises(UserError, match="StopIteration"):
        call(function(stops), [1.0, 0.0, 2.0])


async def awaited_nothing() -> float:
    return 1.5


def nothing() -> float:
    return 1.5


@pytest.mark.parametrize("code", [nothing, awaited_nothing])
def test_functions_without_arguments_have_policies_too(code: Any) -> None:
    assert call(function(code), rows=2).to_pylist() == [1.5, 1.5]
    assert call(function(on_error="null")(code), rows=2).to_pylist() == [1.5, 1.5]


def test_a_result_that_is_not_what_was_declared_fails_alone() -> None:
    @function(on_error="struct")
    def odd(x: int) -> int:
        return x if x < 2 else x / 2  # type: ignore[return-value]  # that is the error

    (good, bad) = call(odd, [1, 3]).to_pylist()
    assert good == {"value": 1, "error": None}
    assert bad["value"] is None
    assert "returned a value that does not fit int64" in bad["error"]


def test_arguments_that_a_function_does_not_take_fail_the_call_under_every_policy() -> None:
    with pytest.raises(ProtocolError):
        call(function(on_error="null")(inverse), pa.array([1.0, None]))


def test_what_ends_a_process_is_no_failure_of_a_row() -> None:
    @function(on_error="null")
    def exits(x: int) -> int:
        raise SystemExit(1)

    with pytest.raises(UserError, match="SystemExit"):
        call(exits, [1])
