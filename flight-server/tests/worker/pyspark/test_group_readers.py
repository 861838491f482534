# SPDX-License-Identifier: Apache-2.0
"""However groups are cut into batches, a function reads the groups that were sent."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft_server.worker.exchange import RequestBatch
from updraft_server.worker.pyspark.group_readers import CogroupReader, GroupReader


class RefusedError(Exception):
    pass


class Requests:
    """Stand-in for the exchange: gives batches that the test has cut."""

    def __init__(self, batches: Iterable[tuple[Sequence[int], Sequence[int], int]], max_records: int = 0) -> None:
        self._batches = iter(batches)
        self.max_records_per_batch = max_records
        self.taken = 0

    def take(self) -> RequestBatch | None:
        taken = next(self._batches, None)
        if taken is None:
            return None
        self.taken += 1
        values, ends, of_input = taken
        return RequestBatch(pa.record_batch({"x": pa.array(values, pa.int64())}), ends, of_input)

    def refuse(self, problem: str) -> NoReturn:
        raise RefusedError(problem)


def slices(table: Iterable[pa.RecordBatch]) -> list[list[int]]:
    return [batch.column(0).to_pylist() for batch in table]


def flat(group: list[list[int]]) -> list[int]:
    return [value for part in group for value in part]


def read(batches: Iterable[tuple[Sequence[int], Sequence[int]]], max_records: int = 0) -> list[list[list[int]]]:
    reader = GroupReader(Requests(((values, ends, 0) for values, ends in batches), max_records))
    return [slices(table) for (table,) in reader]


def read_pairs(*batches: tuple[int, Sequence[int], Sequence[int]]) -> list[tuple[Any, Any]]:
    reader = CogroupReader(Requests((values, ends, of_input) for of_input, values, ends in batches))
    return [(slices(left), slices(right)) for left, right in reader]


def requests_of(groups: list[list[int]], cuts: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return the groups as batches that are cut after these rows."""
    values = [value for group in groups for value in group]
    ends = list(accumulate(len(group) for group in groups))
    edges = [0, *sorted(point % (len(values) + 1) for point in cuts), len(values)]
    batches = []
    for number, (start, end) in enumerate(pairwise(edges)):
        is_last = number == len(edges) - 2
        here = [offset - start for offset in ends if start <= offset < end or (is_last and offset == end)]
        ends = [offset for offset in ends if offset >= end and not is_last]
        batches.append((values[start:end], here))
    return batches


lists_of_groups = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@given(lists_of_groups, st.lists(st.integers(0, 50), max_size=6))
def test_any_cut_gives_the_same_groups(groups: list[list[int]], cuts: list[int]) -> None:
    found = read(requests_of(groups, cuts))
    assert [flat(group) for group in found] == groups


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.lists(st.integers(0, 9), max_size=4)), max_size=6)
)
def test_cogroups_come_in_pairs_whatever_batches_they_share(pairs: list[tuple[list[int], list[int]]]) -> None:
    left = requests_of([pair[0] for pair in pairs], [3, 5])
    right = requests_of([pair[1] for pair in pairs], [2])
    found = read_pairs(*((0, *batch) for batch in left), *((1, *batch) for batch in right))
    assert [(flat(left), flat(right)) for left, right in found] == pairs


def test_small_groups_share_a_batch() -> None:
    assert read([([1, 2, 3, 4], [1, 4])]) == [[[1]], [[2, 3, 4]]]


def test_a_large_group_spans_batches() -> None:
    assert read([([1, 2], []), ([3], []), ([4, 5], [1, 2])]) == [[[1, 2], [3], [4]], [[5]]]


def test_a_group_may_end_with_the_batch_before() -> None:
    assert read([([1, 2], []), ([3], [0, 1])]) == [[[1, 2]], [[3]]]


def test_an_empty_group_is_one_slice_without_rows() -> None:
    assert read([([1], [0, 0, 1, 1])]) == [[[]], [[]], [[1]], [[]]]


def test_slices_are_counted_from_the_start_of_their_group() -> None:
    assert read([([1, 2, 3, 4, 5, 6], [2, 6])], max_records=3) == [[[1, 2]], [[3, 4, 5], [6]]]


def test_a_large_group_is_read_while_it_arrives() -> None:
    source = Requests([([1], [], 0), ([2], [], 0), ([3], [1], 0)])
    (group,) = next(iter(GroupReader(source)))
    next(iter(group))
    assert source.taken == 1


def test_what_a_function_left_of_a_group_is_skipped() -> None:
    reader = iter(GroupReader(Requests([([1, 2], [1], 0), ([3], [0], 0), ([4], [1], 0)])))
    next(reader)
    (second,) = next(reader)
    next(iter(second))
    (third,) = next(reader)
    assert [slices(third), list(reader)] == [[[3], [4]], []]


def test_a_side_without_rows_has_an_empty_slice() -> None:
    assert read_pairs((0, [1], [1, 1]), (1, [2], [0, 1])) == [([[1]], [[]]), ([[]], [[2]])]


def test_cogroups_come_in_runs() -> None:
    runs = [(0, [1], [1]), (1, [2], [1]), (0, [3], []), (0, [4], [1]), (1, [5], []), (1, [], [0])]
    assert read_pairs(*runs) == [([[1]], [[2]]), ([[3], [4]], [[5]])]


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([(0, [1], [1]), (0, [2], [])], "the input ended inside a group"),
        ([(0, [1], [1])], "before the right side"),
        ([(0, [1], [1]), (1, [1], [])], "the input ended inside a group"),
        ([(0, [1], [1]), (1, [1], [1, 1])], "a right group has no left group before it"),
        ([(0, [1], []), (1, [1], [1])], "a right batch came inside a left group"),
        ([(0, [1], [0, 1]), (1, [1], [1]), (0, [1], [])], "a left batch came before the right groups"),
        ([(0, [1], [1]), (1, [1], []), (0, [1], [])], "a left batch came before the right groups"),
    ],
)
def test_cogroups_out_of_order_are_refused(batches: list[tuple[int, list[int], list[int]]], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        read_pairs(*batches)


def test_an_input_that_ends_inside_a_group_is_refused() -> None:
    with pytest.raises(RefusedError, match="the input ended inside a group"):
        read([([1, 2], [1])])
