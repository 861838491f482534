# SPDX-License-Identifier: Apache-2.0
"""Errors in a function of values, as its caller gets them."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from updraft.errors import UserError
from updraft.functions import Arrow, NumPy, Pandas, function
from updraft.testing import call


def short(x: Arrow[int]) -> Arrow[int]:
    return x[1:]


def real_for_int(x: Arrow[int]) -> Arrow[int]:
    return x.cast(pa.float64())


def null(x: Arrow[int]) -> Arrow[int]:
    return pa.nulls(len(x), pa.int64())


def a_list(x: Arrow[int]) -> Arrow[int]:
    return x.to_pylist()


def two_dimensions(x: NumPy[int]) -> NumPy[int]:
    return np.array([[1], [2]])


def objects(x: Pandas[int]) -> Pandas[int]:
    return pd.Series([1, "2"], dtype=object)


def none_among_objects(x: Pandas[int]) -> Pandas[float]:
    return pd.Series([None, 1.0], dtype=object)


class Incomparable:
    def __ne__(self, other: object) -> bool:
        raise RuntimeError("there is no order")


def incomparable(x: Pandas[int]) -> Pandas[int | None]:
    return pd.Series([Incomparable(), 1], dtype=object)


@dataclasses.dataclass
class Priced:
    price: float


class Unpriced(Priced):
    @property
    def price(self) -> float:
        raise LookupError("no price")

    @price.setter
    def price(self, value: float) -> None:
        pass


def broken_property(x: int) -> Priced:
    return Unpriced(1.0)


def other_unit(x: int) -> Annotated[Any, pa.timestamp("us")]:
    return np.datetime64("2026-01-01T00:00:00", "s")


def sparse(x: Pandas[int]) -> Pandas[int]:
    return pd.Series(pd.arrays.SparseArray([1, 2]))


def too_large(x: NumPy[int]) -> NumPy[Annotated[float, pa.float32()]]:
    return np.array([1.0, 1e300])


def too_large_in_lists(x: Arrow[int]) -> Arrow[list[Annotated[float, pa.float32()]]]:
    return pa.array([[1.0], [2.0, -1e300]])


def rounded(x: NumPy[int]) -> NumPy[Annotated[float, pa.float16()]]:
    return np.array([2048, 2049])


def rounded_objects(x: Pandas[int]) -> Pandas[Annotated[float, pa.float16()] | None]:
    return pd.Series([None, 65519], dtype=object)


def rounded_in_lists(x: Arrow[int]) -> Arrow[list[Annotated[float, pa.float16()]]]:
    return pa.array([[1], [2, -2049]], pa.list_(pa.int16()))


def raises(x: int) -> int:
    raise ValueError(f"not {x}")


def exits(x: int) -> int:
    raise SystemExit(3)


async def raises_later(x: int) -> int:
    raise ValueError(f"not {x}")


def too_few(batches: Iterator[Arrow[int]]) -> Iterator[Arrow[int]]:
    next(batches)
    return iter([])


def too_many(batches: Iterator[Arrow[int]]) -> Iterator[Arrow[int]]:
    yield from (batch for batch in batches)
    yield pa.array([1])


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "row_count": (short, "returned 1 values for 2 rows"),
    "type": (real_for_int, "returned double, but has declared int64"),
    "null": (null, "returned a null, which its hint does not allow"),
    "no_array": (a_list, r"must return a pyarrow.Array, not list"),
    "dimensions": (two_dimensions, "of one dimension"),
    "objects": (objects, r"returned a value that does not fit int64: .* \(row 1 of the batch, value '2'\)"),
    "null_among_objects": (none_among_objects, "returned a null, which its hint does not allow"),
    "incomparable": (incomparable, "returned a value that does not fit int64: there is no order"),
    "broken_property": (broken_property, r"no price \(row 0 of the batch, value <Unpriced instance"),
    "other_unit": (other_unit, r"returned a value that does not fit timestamp\[us\]"),
    "sparse": (sparse, "which Arrow does not have"),
    "too_large": (
        too_large,
        r"which does not fit float: a number as large as 1e\+300.*\(row 1 of the batch, value 1e\+300\)",
    ),
    "too_large_in_lists": (
        too_large_in_lists,
        r"a number as large as -1e\+300 does not fit float.*\(row 1 of the batch, value \[2\.0, -1e",
    ),
    "rounded": (rounded, "which does not fit halffloat: the integer 2049 does not fit halffloat: declare a wider type"),
    "rounded_objects": (rounded_objects, "the integer 65519 does not fit halffloat"),
    "rounded_in_lists": (rounded_in_lists, "the integer -2049 does not fit halffloat"),
    "exception": (raises, "ValueError: not 1"),
    "exit": (exits, "SystemExit: 3"),
    "awaited": (raises_later, "ValueError: not 1"),
    "too_few": (too_few, "before it had given a result for each batch"),
    "too_many": (too_many, "before it had taken a batch for it"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_goes_wrong_in_a_function_is_an_error_of_its_own(case: str) -> None:
    code, reason = WRONG[case]
    with pytest.raises(UserError, match=reason):
        call(function(code), [1, 2])


def test_the_error_of_an_exception_has_its_class_and_traceback() -> None:
    with pytest.raises(UserError) as caught:
        call(function(raises), [7])
    assert caught.value.exception_class == "ValueError"
    assert "raise ValueError" in caught.value.traceback
