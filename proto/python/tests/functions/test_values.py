# SPDX-License-Identifier: Apache-2.0
"""Columns become plain values a batch at a time: a call of pyarrow for each value takes seven times as long."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from updraft.functions import Function, function
from updraft.functions.loaded import load


class Column:
    """Column that can only be read as a whole: indexing and iterating raise."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self.times_read = 0

    def to_pylist(self) -> list[Any]:
        self.times_read += 1
        return list(self._values)


@function
def rows(x: int, y: int) -> int:
    return x + y


@function
async def awaited(x: int, y: int) -> int:
    return x + y


@function.table
def tabled(x: int, y: int) -> Iterator[int]:
    yield x + y


@function(on_error="null")
def lenient(x: int, y: int) -> int:
    return x + y


def results_of(function: Function[..., Any], columns: list[Column]) -> list[Any]:
    """Return the results for a batch of these columns."""
    batch = SimpleNamespace(num_rows=3, columns=columns)
    loaded = cast(Any, load(function))
    results = loaded.run(batch) if function is tabled else loaded.run([batch])
    return [value for result in results for value in result.column(0).to_pylist()]


@pytest.mark.parametrize("code", [rows, awaited, tabled, lenient], ids=["rows", "awaited", "tabled", "lenient"])
def test_each_column_of_a_batch_is_read_once(code: Callable[..., Any]) -> None:
    columns = [Column([1, 2, 3]), Column([10, 20, 30])]
    assert results_of(cast(Any, code), columns) == [11, 22, 33]
    assert [column.times_read for column in columns] == [1, 1]
