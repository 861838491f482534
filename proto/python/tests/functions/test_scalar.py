# SPDX-License-Identifier: Apache-2.0
"""Functions that give a value for each row, in each of their forms."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from updraft.errors import UserError
from updraft.functions import Arrow, Batching, NumPy, Pandas, function
from updraft.testing import call, load


@function
def rows(x: int, y: int) -> int:
    return x + y


@function
def arrow(x: Arrow[int], y: Arrow[int]) -> Arrow[int]:
    return pc.add(x, y)


@function
def pandas(x: Pandas[int], y: Pandas[int]) -> Pandas[int]:
    assert isinstance(x, pd.Series)
    return x + y


@function
def numpy(x: NumPy[int], y: NumPy[int]) -> NumPy[int]:
    assert isinstance(x, np.ndarray)
    return x + y


@function(arguments=pa.schema({"x": pa.int64(), "y": pa.int64()}), result=pa.int64())
def schema(x, y):  # type: ignore[no-untyped-def]  # the decorator has the types
    return pc.add(x, y)


@function
def iterator(batches: Iterator[tuple[Arrow[int], Arrow[int]]]) -> Iterator[Arrow[int]]:
    for x, y in batches:
        yield pc.add(x, y)


@function
async def awaited(x: int, y: int) -> int:
    return x + y


@function
async def awaited_columns(x: Arrow[int], y: Arrow[int]) -> Arrow[int]:
    return pc.add(x, y)


@function
class Loaded:
    def __call__(self, x: int, y: int) -> int:
        return x + y


FORMS: list[Callable[..., Any]] = [
    rows,
    arrow,
    pandas,
    numpy,
    schema,
    iterator,
    awaited,
    awaited_columns,
    Loaded,
]


@pytest.mark.parametrize("form", FORMS, ids=[form.__name__ for form in FORMS])
@pytest.mark.parametrize("batch_rows", [0, 1, 3])
def test_every_form_gives_the_same_answers(form: Callable[..., Any], batch_rows: int) -> None:
    results = call(form, range(10), range(10, 20), batch_rows=batch_rows)
    assert results.equals(pa.array(range(10, 30, 2), pa.int64()))


@pytest.mark.parametrize("form", FORMS, ids=[form.__name__ for form in FORMS])
def test_no_rows_have_no_results(form: Callable[..., Any]) -> None:
    assert call(form, [], []).equals(pa.array([], pa.int64()))


def test_a_class_is_constructed_once() -> None:
    constructed: list[int] = []

    @function
    class Counted:
        def __init__(self) -> None:
            constructed.append(1)

        def __call__(self, x: int) -> int:
            return x

    assert constructed == []
    loaded = load(Counted)
    loaded.call([1], batch_rows=1)
    loaded.call([1, 2], batch_rows=1)
    assert constructed == [1]


def test_a_class_that_can_warm_up_does_so_before_the_first_call() -> None:
    @function
    class Warm:
        warm = False

        def warm_up(self) -> None:
            self.warm = True

        def __call__(self, x: int) -> bool:
            return self.warm

    assert call(Warm, [1]).to_pylist() == [True]


def test_a_function_without_arguments_is_called_for_each_row() -> None:
    values = iter(range(100))

    @function(deterministic=False)
    def counted() -> int:
        return next(values)

    assert call(counted, rows=3).to_pylist() == [0, 1, 2]


def test_nulls_in_pandas_keep_integers_exact() -> None:
    @function
    def same(x: Pandas[int | None]) -> Pandas[int | None]:
        assert str(x.dtype) == "Int64"
        return x

    values = [2**62 + 1, None]
    assert call(same, values).to_pylist() == values


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
    with pytest.raises(UserError, match="which is no double"):
        call(real, [2**53 + 1])


def test_a_batched_function_gets_no_more_rows_at_once_than_its_author_says() -> None:
    sizes: list[int] = []

    @function(batching=Batching(rows=3))
    def measured(x: Arrow[int]) -> Arrow[int]:
        sizes.append(len(x))
        return x

    assert call(measured, range(7)).to_pylist() == list(range(7))
    assert sizes == [3, 3, 1]
    assert call(measured, range(7), batch_rows=5).to_pylist() == list(range(7))
    # Its process has nobody's rows but these, and each batch for itself.
    assert sizes[3:] == [3, 2, 2]
    assert call(measured, []).equals(pa.array([], pa.int64()))
    assert sizes[6:] == []


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
    "objects": (objects, "returned what is no int64"),
    "null_among_objects": (none_among_objects, "returned a null, which its hint does not allow"),
    "incomparable": (incomparable, "returned what is no int64: there is no order"),
    "broken_property": (broken_property, "no price"),
    "other_unit": (other_unit, r"returned what is no timestamp\[us\]"),
    "sparse": (sparse, "which Arrow does not have"),
    "too_large": (too_large, r"which is no float: a number as large as 1e\+300"),
    "too_large_in_lists": (too_large_in_lists, r"a number as large as -1e\+300 is no float"),
    "rounded": (rounded, "which is no halffloat: the integer 2049 is no halffloat: declare a wider type"),
    "rounded_objects": (rounded_objects, "the integer 65519 is no halffloat"),
    "rounded_in_lists": (rounded_in_lists, "the integer -2049 is no halffloat"),
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


def test_an_iterator_may_take_batches_before_it_gives_results() -> None:
    @function
    def ahead(batches: Iterator[Arrow[int]]) -> Iterator[Arrow[int]]:
        yield from list(batches)

    assert call(ahead, range(5), batch_rows=2).to_pylist() == list(range(5))
