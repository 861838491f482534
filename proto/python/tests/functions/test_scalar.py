# SPDX-License-Identifier: Apache-2.0
"""Functions that give a value for each row, in each of their forms."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

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


def test_a_batched_function_gets_no_more_rows_at_once_than_its_author_says() -> None:
    sizes: list[int] = []

    @function(batching=Batching(rows=3))
    def measured(x: Arrow[int]) -> Arrow[int]:
        sizes.append(len(x))
        return x

    assert call(measured, range(7)).to_pylist() == list(range(7))
    assert sizes == [3, 3, 1]
    assert call(measured, range(7), batch_rows=5).to_pylist() == list(range(7))
    # The function gets only this call's rows, one batch at a time.
    assert sizes[3:] == [3, 2, 2]
    assert call(measured, []).equals(pa.array([], pa.int64()))
    assert sizes[6:] == []


def test_an_iterator_may_take_batches_before_it_gives_results() -> None:
    @function
    def ahead(batches: Iterator[Arrow[int]]) -> Iterator[Arrow[int]]:
        yield from list(batches)

    assert call(ahead, range(5), batch_rows=2).to_pylist() == list(range(5))
