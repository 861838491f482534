# SPDX-License-Identifier: Apache-2.0
"""`updraft.testing` checks what a function gets and returns as a pool does, whatever the function's kind."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from updraft.errors import ProtocolError, UserError
from updraft.functions import Arrow, Batching, function
from updraft.testing import aggregate, call, table

TEXT = pa.array(["a", "b"])
NO_TEXT = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"]).buffers())


@function
def broken(x: Arrow[str]) -> Arrow[str]:
    return NO_TEXT[: len(x)]


@function
def broken_batches(batches: Iterator[Arrow[str]]) -> Iterator[Arrow[str]]:
    return (NO_TEXT[: len(x)] for x in batches)


@function(batching=Batching())
def broken_model(x: Arrow[str]) -> Arrow[str]:
    return NO_TEXT[: len(x)]


@function.table(result=pa.schema({"y": pa.string()}))
def broken_table(x: Arrow[str]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"y": NO_TEXT})


@pytest.mark.parametrize("code", [broken, broken_batches, broken_model])
@pytest.mark.parametrize("batch_rows", [0, 1])
def test_values_that_are_not_valid_arrow_are_an_error_of_the_function(code: Any, batch_rows: int) -> None:
    with pytest.raises(UserError, match="a column that is not valid Arrow"):
        call(code, TEXT, batch_rows=batch_rows)


def test_tables_that_are_not_valid_arrow_are_an_error_of_the_function() -> None:
    with pytest.raises(UserError, match="a column that is not valid Arrow"):
        table(broken_table, TEXT)


@function
def length(x: str) -> int:
    return len(x)


@function.table
def letters(x: str) -> Iterator[str]:
    return iter(x)


@function.aggregate
class Longest:
    def start(self) -> int:
        return 0

    def accumulate(self, state: int, x: str) -> int:
        return max(state, len(x))

    def merge(self, left: int, right: int) -> int:
        return max(left, right)

    def finish(self, state: int) -> int:
        return state


CALLS: list[tuple[Callable[..., Any], Any]] = [(call, length), (table, letters), (aggregate, Longest)]


@pytest.mark.parametrize(("run", "code"), CALLS)
def test_what_no_caller_can_send_is_an_error_of_the_caller(run: Callable[..., Any], code: Any) -> None:
    with pytest.raises(ProtocolError, match="is not an Arrow batch of the announced schema"):
        run(code, NO_TEXT)
    with pytest.raises(ProtocolError, match="is a dictionary of list<item: string>, which is refused"):
        run(code, pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([["a"]])))


@pytest.mark.parametrize(("run", "code"), CALLS)
def test_dictionaries_are_decoded_as_in_a_pool(run: Callable[..., Any], code: Any) -> None:
    assert run(code, TEXT.dictionary_encode(), batch_rows=1).equals(run(code, TEXT, batch_rows=1))
