# SPDX-License-Identifier: Apache-2.0
"""Results that a function may return for its declared type."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from updraft.errors import UserError
from updraft.functions import Arrow, NumPy, Pandas, function
from updraft.testing import call


def test_a_nan_of_a_nullable_result_is_null_and_of_another_one_a_number() -> None:
    @function
    def nullable(x: NumPy[float | None]) -> NumPy[float | None]:
        return x

    @function
    def exact(x: NumPy[float]) -> NumPy[float]:
        return x

    assert call(nullable, [1.0, None]).to_pylist() == [1.0, None]
    assert call(exact, [float("nan")]).null_count == 0


def same_floats(x: NumPy[list[float] | None]) -> NumPy[list[float] | None]:
    return x


def same_float_series(x: Pandas[list[float] | None]) -> Pandas[list[float] | None]:
    return x


def same_nested(x: Pandas[list[list[float]] | None]) -> Pandas[list[list[float]] | None]:
    return x


def same_maps(x: Pandas[dict[str, float] | None]) -> Pandas[dict[str, float] | None]:
    return x


LISTS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "numpy": (same_floats, [[1.0, 2.0], None, [], [math.inf]]),
    "pandas": (same_float_series, [[1.0, 2.0], None, [], [math.inf]]),
    "nested": (same_nested, [[[1.0], []], None, [[2.0, 3.0], [4.0]]]),
    "maps": (same_maps, [[("a", 1.0)], None, []]),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_nullable_result_of_objects_may_be_lists_and_maps(case: str) -> None:
    code, values = LISTS[case]
    assert call(function(code), values).to_pylist() == values


def test_a_list_of_one_nan_is_no_null() -> None:
    assert call(function(same_floats), [[math.nan]]).null_count == 0


def test_the_missing_values_of_pandas_are_nulls_of_a_nullable_result() -> None:
    def missing(x: Pandas[int]) -> Pandas[int | None]:
        return pd.Series([pd.NA, math.nan, None, 7], dtype=object)

    assert call(function(missing), range(4)).to_pylist() == [None, None, None, 7]


@pytest.mark.parametrize(
    ("result", "values", "read"),
    [
        (Pandas[str | None], ["a", None, ""], ["a", None, ""]),
        (Pandas[str | None], ["a", math.nan, pd.NA], ["a", None, None]),
        (Pandas[str | None], ["a", np.float64("nan")], ["a", None]),
        (Pandas[float | None], [1.5, math.nan, None, math.inf], [1.5, None, None, math.inf]),
        (Pandas[float | None], [1, math.nan, 2.5], [1.0, None, 2.5]),
        (Pandas[bytes | None], [b"a", math.nan, None], [b"a", None, None]),
        (Pandas[bool | None], [True, math.nan, None, False], [True, None, None, False]),
    ],
    ids=str,
)
def test_objects_of_any_mixture_keep_what_is_there(result: Any, values: list[Any], read: list[Any]) -> None:
    def give(x: Pandas[int]) -> Any:
        return pd.Series(values, dtype=object)

    give.__annotations__["return"] = result
    assert call(function(give), range(len(values))).to_pylist() == read


def test_float16_takes_the_integers_that_it_has_and_rounds_real_numbers() -> None:
    def halves(x: NumPy[int]) -> NumPy[Annotated[float, pa.float16()]]:
        return x

    def half(x: int) -> Annotated[float, pa.float16()]:
        return x

    def real_half(x: int) -> Annotated[float, pa.float16()]:
        return x + 0.5

    integers = [0, -2048, 2050, 65504]
    assert call(function(halves), integers).to_pylist() == integers
    assert call(function(half), integers).to_pylist() == integers
    assert call(function(real_half), [2048]).to_pylist() == [2048.0]


def test_a_result_may_be_wider_as_long_as_no_value_changes() -> None:
    @function
    def narrow(x: Arrow[int]) -> Arrow[int]:
        return x.cast(pa.int32())

    @function
    def real(x: Arrow[int]) -> Arrow[float]:
        return x

    @function
    def nothing(x: Arrow[int]) -> Arrow[list[Annotated[float, pa.float32()]] | None]:
        return pa.nulls(len(x))

    assert call(narrow, [1]).type == pa.int64()
    assert call(nothing, [1]).to_pylist() == [None]
    assert call(real, [1]).to_pylist() == [1.0]
    with pytest.raises(UserError, match="which does not fit double"):
        call(real, [2**53 + 1])
