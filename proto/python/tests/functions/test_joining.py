# SPDX-License-Identifier: Apache-2.0
"""Batches of an aggregate are joined up to bounds, and come out in the order in which they came."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.errors import ProtocolError, UserError
from updraft.functions import Arrow, function
from updraft.functions.aggregates import AggregateCall, Aggregation, LoadedAggregate, Stage
from updraft.functions.hints import Form
from updraft.functions.joining import Bounds, Joiner, Rows
from updraft.functions.loaded import load as loaded


def rows(*values: int, counted: int | None = None) -> Rows:
    """Return rows with these keys; the first `counted` also have them as arguments."""
    batch = pa.record_batch({"x": pa.array(values, pa.int64())})
    return Rows(batch, batch if counted is None else batch.slice(0, counted), 2 * batch.nbytes)


def values(joined: Iterable[Rows]) -> list[list[int]]:
    return [each.leading.column(0).to_pylist() for each in joined]


def test_batches_are_held_until_the_next_one_has_too_many_rows() -> None:
    joiner = Joiner(Bounds(rows=5, size_bytes=1 << 20))
    assert values(joiner.add(rows(1, 2))) == []
    assert values(joiner.add(rows(3, 4))) == []
    assert joiner.held == 2
    assert values(joiner.add(rows(5, 6))) == [[1, 2, 3, 4]]
    assert joiner.held == 1
    assert values(joiner.rest()) == [[5, 6]]
    assert joiner.held == 0
    assert values(joiner.rest()) == []


def test_batches_that_fill_the_bounds_do_not_wait_for_another() -> None:
    joiner = Joiner(Bounds(rows=4, size_bytes=1 << 20))
    assert values(joiner.add(rows(1, 2))) == []
    assert values(joiner.add(rows(3, 4))) == [[1, 2, 3, 4]]
    assert joiner.held == 0


def test_a_batch_that_is_larger_than_the_bounds_stays_alone() -> None:
    joiner = Joiner(Bounds(rows=3, size_bytes=1 << 20))
    large = rows(2, 3, 4, 5)
    assert values(joiner.add(rows(1))) == []
    first, second = joiner.add(large)
    assert values([first]) == [[1]]
    assert second.leading is large.leading, "it is not copied"
    assert joiner.held == 0


def test_bytes_of_the_batches_bound_what_is_held() -> None:
    # Each row has sixteen bytes.
    joiner = Joiner(Bounds(rows=1000, size_bytes=48))
    assert values(joiner.add(rows(1, 2))) == []
    assert values(joiner.add(rows(3, 4))) == [[1, 2]]
    assert values(joiner.add(rows(5))) == [[3, 4, 5]]


def test_no_more_batches_are_held_than_the_bounds_say_however_small_they_are() -> None:
    joiner = Joiner(Bounds(rows=1000, size_bytes=1 << 20, batches=2))
    assert values(joiner.add(rows(1))) == []
    assert values(joiner.add(rows(2))) == [[1, 2]]
    assert joiner.held == 0


def test_batches_without_columns_are_joined() -> None:
    joiner = Joiner(Bounds(rows=10, size_bytes=1 << 20))
    empty = pa.record_batch({"x": [1, 2]}).select([])
    assert list(joiner.add(Rows(empty, empty, 0))) == []
    assert list(joiner.add(Rows(empty, empty.slice(0, 1), 0))) == []
    (joined,) = joiner.rest()
    assert (joined.leading.num_rows, joined.arguments.num_rows) == (4, 3)


def test_batches_without_rows_are_not_held() -> None:
    joiner = Joiner(Bounds(rows=10, size_bytes=1 << 20))
    assert values(joiner.add(rows(1))) == []
    for _ in range(3):
        assert values(joiner.add(rows())) == []
    assert joiner.held == 1
    assert values(joiner.rest()) == [[1]]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12), st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_no_row_is_lost_and_what_is_joined_is_within_the_bounds(sizes: list[int], most: int, size_bytes: int) -> None:
    joiner = Joiner(Bounds(most, size_bytes))
    ends = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    batches = [rows(*range(start, end)) for start, end in pairwise(ends)]
    joined: list[Rows] = []
    for batch, end in zip(batches, ends[1:], strict=True):
        joined += joiner.add(batch)
        held_rows = end - sum(each.leading.num_rows for each in joined)
        assert held_rows <= most
        assert 16 * held_rows <= size_bytes
    joined += joiner.rest()
    assert [value for each in values(joined) for value in each] == list(range(sum(sizes)))
    largest = max(sizes, default=0)
    assert all(each.leading.num_rows <= max(most, largest) for each in joined)
    assert all(each.size_bytes <= max(size_bytes, 16 * largest) for each in joined)


def test_values_of_python_are_joined_to_less_than_columns() -> None:
    of_values, of_columns = Bounds.of(Form.ROWS), Bounds.of(Form.ARROW)
    assert of_values.rows < of_columns.rows
    assert of_values.size_bytes < of_columns.size_bytes


@function.aggregate
class Calls:
    """The values as they came to each call."""

    def start(self) -> list[str]:
        return []

    def accumulate(self, state: list[str], value: Arrow[int]) -> list[str]:
        if -1 in value.to_pylist():
            raise ValueError("no")
        return [*state, " ".join(map(str, value.to_pylist()))]

    def merge(self, left: list[str], right: list[str]) -> list[str]:
        return left + right

    def finish(self, state: list[str]) -> list[str]:
        return state


def begun(stage: Stage = Stage.WHOLE, *, filtered: bool = False, code: Any = Calls) -> Aggregation:
    columns = {"key": pa.string()} | ({"counts": pa.bool_()} if filtered else {}) | {"value": pa.int64()}
    if stage is Stage.MERGE:
        columns["value"] = pa.list_(pa.string())
    aggregate = loaded(code)
    assert isinstance(aggregate, LoadedAggregate)
    return aggregate.begin(pa.schema(columns), AggregateCall(stage, key_columns=1, filtered=filtered))


def batch(columns: dict[str, list[Any]]) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_small_batches_reach_the_function_in_one_call_for_each_group() -> None:
    aggregation = begun()
    aggregation.add(batch({"key": ["b", "a"], "value": [1, 2]}))
    aggregation.add(batch({"key": ["a", "b"], "value": [3, 4]}))
    assert aggregation.held == 2
    assert aggregation.results().to_pylist() == [{"key": "b", "result": ["1 4"]}, {"key": "a", "result": ["2 3"]}]
    assert aggregation.held == 0


def test_a_large_batch_does_not_overtake_the_small_one_before_it() -> None:
    most = Bounds.of(Form.ARROW).rows
    aggregation = begun(code=Firsts)
    aggregation.add(batch({"key": ["a"], "value": [7]}))
    aggregation.add(pa.record_batch({"key": pa.repeat("a", most), "value": pa.array(range(most))}))
    assert aggregation.held == 0
    aggregation.add(batch({"key": ["a"], "value": [8]}))
    assert aggregation.results().column("result").to_pylist() == [[7, 0, 8]]


@function.aggregate
class Firsts:
    """The first value of each call."""

    def start(self) -> list[int]:
        return []

    def accumulate(self, state: list[int], value: Arrow[int]) -> list[int]:
        return [*state, value[0].as_py()]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> list[int]:
        return state


def test_states_are_merged_in_the_order_in_which_they_came() -> None:
    aggregation = begun(Stage.MERGE)
    state = pa.schema({"key": pa.string(), "value": pa.list_(pa.string())})
    for number in range(4):
        states = {"key": ["a", "b"], "value": [[f"a{number}"], [f"b{number}"]]}
        aggregation.add(pa.RecordBatch.from_pydict(states, schema=state))
    assert aggregation.held == 4
    assert aggregation.results().column("result").to_pylist() == [["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"]]


def test_groups_that_a_filter_empties_keep_their_place_among_joined_batches() -> None:
    aggregation = begun(filtered=True)
    aggregation.add(batch({"key": ["b", "a"], "counts": [False, True], "value": [1, 2]}))
    aggregation.add(batch({"key": ["c", "b"], "counts": [True, None], "value": [3, 4]}))
    aggregation.add(batch({"key": ["a", "a"], "counts": [False, True], "value": [5, 6]}))
    assert aggregation.results().to_pylist() == [
        {"key": "b", "result": []},
        {"key": "a", "result": ["2 6"]},
        {"key": "c", "result": ["3"]},
    ]


@function.aggregate
class Texts:
    """The number of texts."""

    def start(self) -> int:
        return 0

    def accumulate(self, state: int, text: Arrow[str]) -> int:
        return state + len(text)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


def test_a_batch_takes_the_room_of_its_memory_whatever_the_filter_leaves_of_it() -> None:
    code: Any = Texts
    aggregate = loaded(code)
    assert isinstance(aggregate, LoadedAggregate)
    large = batch({"key": ["a"], "counts": [False], "text": ["x" * (3 << 20)]})
    aggregation = aggregate.begin(large.schema, AggregateCall(key_columns=1, filtered=True))
    held = []
    for _ in range(4):
        aggregation.add(large)
        held.append(aggregation.held)
    assert held == [1, 2, 1, 2], "a key is a view of the memory in which all columns came"
    assert aggregation.results().to_pylist() == [{"key": "a", "result": 0}]


def test_a_wrong_argument_is_refused_with_its_own_batch() -> None:
    aggregation = begun()
    aggregation.add(batch({"key": ["a"], "value": [1]}))
    with pytest.raises(ProtocolError, match="argument 'value' of function 'Calls' has a null"):
        aggregation.add(pa.record_batch({"key": ["a"], "value": pa.array([None], pa.int64())}))


def test_an_error_in_a_held_batch_ends_the_exchange_with_the_batch_that_needs_its_room() -> None:
    aggregation = begun()
    aggregation.add(batch({"key": ["a"], "value": [-1]}))
    most = Bounds.of(Form.ARROW).rows
    large = pa.record_batch({"key": pa.repeat("a", most), "value": pa.array(range(most))})
    with pytest.raises(UserError, match="ValueError: no"):
        aggregation.add(large)


def test_an_error_in_the_last_held_batch_is_no_result() -> None:
    aggregation = begun()
    aggregation.add(batch({"key": ["a"], "value": [2]}))
    aggregation.add(batch({"key": ["a"], "value": [-1]}))
    with pytest.raises(UserError, match="ValueError: no"):
        aggregation.results()
