# SPDX-License-Identifier: Apache-2.0
"""However a function cuts its results, one-to-one replies have the rows of their requests, in order."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.errors import UpdraftError, UserError
from updraft_server.worker.replies import (
    FreeRunningReplies,
    JoinedReplies,
    OneToOneReplies,
    Replies,
    slice_by_rows,
    slicer,
    split_by_bytes,
)


class Recorder:
    """Stand-in for the exchange: keeps replies."""

    def __init__(self, max_reply_batch_bytes: int = 1 << 20, max_records_per_reply: int = 0) -> None:
        self.max_reply_batch_bytes = self.max_bytes_per_reply = max_reply_batch_bytes
        self.max_records_per_reply = max_records_per_reply
        self.replies: list[tuple[int, list[int]]] = []

    def reply(self, batch: pa.RecordBatch, *, sequence: int, row_ends: Sequence[int] = ()) -> None:
        self.replies.append((sequence, batch.column(0).to_pylist()))

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(range(start, start + count), pa.int64())})


def cut(total: int, points: list[int]) -> list[pa.RecordBatch]:
    edges = [0, *sorted(point % (total + 1) for point in points), total]
    return [rows(start, end - start) for start, end in pairwise(edges)]


sizes = st.lists(st.integers(0, 20), min_size=1, max_size=8)


@given(sizes, st.lists(st.integers(0, 200), max_size=10), st.integers(0, 8))
def test_any_cut_and_any_read_ahead_give_the_same_replies(requests: list[int], points: list[int], ahead: int) -> None:
    recorder = Recorder()
    replies = OneToOneReplies(recorder)
    owed = list(enumerate(requests, 1))
    given_rows = yielded_rows = 0
    for batch in cut(sum(requests), points):
        yielded_rows += batch.num_rows
        while owed and (given_rows < yielded_rows or ahead > 0):
            sequence, count = owed.pop(0)
            replies.requested(sequence, count)
            given_rows += count
            ahead -= 1
        replies.add(batch)
    for sequence, count in owed:
        replies.requested(sequence, count)
        replies.add(rows(0, 0))
    replies.close()
    assert [len(values) for _, values in recorder.replies] == requests
    assert [sequence for sequence, _ in recorder.replies] == list(range(1, len(requests) + 1))
    assert [value for _, values in recorder.replies for value in values] == list(range(sum(requests)))


def test_rows_that_nobody_asked_for_are_a_user_failure() -> None:
    replies = OneToOneReplies(Recorder())
    replies.requested(1, 2)
    with pytest.raises(UserError, match="1 more rows"):
        replies.add(rows(0, 3))


def test_the_value_of_a_group_may_come_before_the_group_has_ended() -> None:
    recorder = Recorder()
    replies = OneToOneReplies(recorder, ahead=1)
    replies.requested(1, 0)
    replies.add(rows(0, 1))
    replies.requested(2, 1)
    replies.flush()
    replies.close()
    assert recorder.replies == [(1, []), (2, [0])]


def test_a_value_too_many_is_a_user_failure() -> None:
    replies = OneToOneReplies(Recorder(), ahead=1)
    replies.requested(1, 0)
    replies.add(rows(0, 1))
    with pytest.raises(UserError, match="1 more rows"):
        replies.close()


def test_rows_that_are_missing_are_a_user_failure() -> None:
    replies = OneToOneReplies(Recorder())
    replies.requested(1, 2)
    replies.add(rows(0, 1))
    with pytest.raises(UserError, match="1 of the 2 rows of batch 1"):
        replies.close()


@given(st.integers(1, 3000), st.integers(500, 5000))
def test_free_running_replies_are_split_below_the_limit_without_losing_a_row(count: int, limit: int) -> None:
    recorder = Recorder(limit)
    FreeRunningReplies(recorder).add(rows(0, count))
    assert [value for _, values in recorder.replies for value in values] == list(range(count))
    assert [sequence for sequence, _ in recorder.replies] == list(range(1, len(recorder.replies) + 1))


@given(st.integers(1, 2000), st.integers(400, 5000))
def test_parts_are_below_the_limit_where_a_row_is(count: int, limit: int) -> None:
    parts = list(split_by_bytes(rows(0, count), limit))
    assert all(pa.ipc.get_record_batch_size(part) <= limit or part.num_rows == 1 for part in parts)


def test_free_running_replies_keep_to_the_rows_that_were_asked_for() -> None:
    recorder = Recorder(max_records_per_reply=3)
    replies = FreeRunningReplies(recorder)
    replies.add(rows(0, 7))
    replies.add(rows(7, 2))
    assert recorder.replies == [(1, [0, 1, 2]), (2, [3, 4, 5]), (3, [6]), (4, [7, 8])]


@pytest.mark.parametrize("made", [JoinedReplies, OneToOneReplies, FreeRunningReplies])
def test_a_function_may_use_the_memory_of_its_results_again(made: Callable[[Recorder], Replies]) -> None:
    recorder = Recorder()
    replies = made(recorder)
    values = np.zeros(3, "int64")
    replies.requested(1, 2)
    replies.requested(2, 7)
    for number in (1, 2, 3):
        values[:] = number
        replies.add(pa.RecordBatch.from_arrays([pa.array(values)], ["x"]))
    replies.close()
    assert [value for _, sent in recorder.replies for value in sent] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_slices_of_a_nested_column_share_a_reply() -> None:
    recorder = Recorder()
    replies = JoinedReplies(recorder)
    lists = pa.record_batch({"x": pa.array([[number] * 100 for number in range(500)])})
    for row in range(lists.num_rows):
        replies.add(lists.slice(row, 1))
    replies.close()
    assert recorder.replies == [(1, lists.column(0).to_pylist())]


@pytest.mark.parametrize("made", [JoinedReplies, OneToOneReplies])
def test_results_that_wait_take_no_more_memory_than_their_own_rows(made: Callable[[Recorder], Replies]) -> None:
    replies = made(Recorder())
    arguments = rows(0, 100_000)
    replies.requested(1, arguments.num_rows)
    before = pa.total_allocated_bytes()
    for start in range(0, 100, 10):
        replies.add(arguments.slice(start, 10))
    assert pa.total_allocated_bytes() - before < arguments.nbytes / 10


MAP = pa.map_(pa.string(), pa.int32())
NULL_BESIDE_NUMBER = pa.array([{"of the first": None}, {"of the second": 7}], MAP)


@given(st.integers(0, 100), st.integers(0, 30))
def test_slices_have_at_most_as_many_rows_as_allowed(count: int, limit: int) -> None:
    slices = list(slice_by_rows(rows(0, count), limit))
    assert sum(part.num_rows for part in slices) == count
    assert all(part.num_rows <= (limit or count) for part in slices)


@pytest.mark.parametrize(
    "column",
    [
        NULL_BESIDE_NUMBER,
        pa.StructArray.from_arrays([NULL_BESIDE_NUMBER], ["field"]),
        pa.ListArray.from_arrays([0, 1, 2], NULL_BESIDE_NUMBER),
        pa.ExtensionArray.from_storage(pa.opaque(MAP, "named", "elsewhere"), NULL_BESIDE_NUMBER),
    ],
    ids=["map", "struct", "list", "extension"],
)
def test_a_map_is_what_it_is_without_its_neighbours(column: pa.Array) -> None:
    batch = pa.record_batch({"x": column})
    alone = pa.record_batch({"x": pa.array(column.to_pylist()[1:], column.type)})
    for second in (slicer(batch)(1, 1), list(slice_by_rows(batch, 1))[1]):
        assert second.equals(alone)
        assert repr(second.to_pandas()["x"][0]) == repr(alone.to_pandas()["x"][0])


def test_slices_without_maps_are_not_copied() -> None:
    batch = rows(0, 10)
    allocated = pa.total_allocated_bytes()
    slices = list(slice_by_rows(batch, 3))
    assert (len(slices), pa.total_allocated_bytes()) == (4, allocated)
