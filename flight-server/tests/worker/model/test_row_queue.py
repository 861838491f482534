# SPDX-License-Identifier: Apache-2.0
"""Rows that make up a batch, and when, with a clock that the test sets."""

import itertools
import math
from collections import Counter

import pytest

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.worker.model.row_queue import Piece, RowQueue


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> RowQueue[str, str]:
    """Return a queue with full batches of 512 rows, two open exchanges, and one that never sends."""
    queue = RowQueue[str, str](512, 0.01, clock)
    for exchange in ("a", "b", "silent"):
        queue.open(exchange)
    return queue


def test_an_empty_queue_is_never_due_and_has_no_batch(queue: RowQueue[str, str]) -> None:
    assert queue.due_in_seconds() is None
    assert queue.take() == ()
    assert sum(queue.record.batches.counts) == 0


def test_a_full_batch_is_due_at_once_and_leaves_the_rest(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 500, clock())
    assert queue.due_in_seconds() == pytest.approx(0.01)
    queue.add("b", "second", 100, clock())
    assert queue.due_in_seconds() == 0
    taken = queue.take()
    assert sum(piece.rows for piece in taken) == 512
    assert queue.rows == 88


def test_rows_wait_for_others_no_longer_than_the_author_says(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 1, clock())
    clock.seconds += 0.004
    queue.add("b", "second", 1, clock())
    assert queue.due_in_seconds() == pytest.approx(0.006)
    clock.seconds += 0.007
    assert queue.due_in_seconds() == 0
    assert queue.take() == [Piece("first", 0, 1), Piece("second", 0, 1)]
    assert queue.record.batches.at_most(1) == 2
    assert queue.record.waits.at_most(1) == 0.02
    assert queue.record.waits.total == pytest.approx(0.018)


def test_rows_that_came_while_the_model_worked_wait_for_those_that_it_answers_then(
    queue: RowQueue[str, str], clock: Clock
) -> None:
    queue.add("a", "first", 300, clock())
    clock.seconds += 0.01
    assert queue.take() == [Piece("first", 0, 300)]
    queue.add("b", "late", 200, clock())
    clock.seconds += 5
    queue.done()
    assert queue.due_in_seconds() == pytest.approx(0.01)
    queue.add("a", "second", 300, clock())
    clock.seconds += 0.01
    # They wait together from now on.
    assert sum(piece.rows for piece in queue.take()) == 500
    assert queue.record.waits.at_most(1) == 10


def test_the_time_that_rows_were_under_way_counts_as_waiting(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 1, clock() - 5)
    assert queue.due_in_seconds() == 0


def test_a_sender_cannot_claim_to_have_sent_in_the_future(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 1, clock() + 1000)
    assert queue.due_in_seconds() == pytest.approx(0.01)


def test_a_sender_cannot_claim_to_have_waited_for_ever(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 1, -1e308)
    queue.take()
    assert queue.record.waits.total == 3600


def test_nothing_is_waited_for_once_every_exchange_has_rows_in_the_queue(
    queue: RowQueue[str, str], clock: Clock
) -> None:
    queue.add("a", "first", 1, clock())
    queue.add("b", "second", 1, clock())
    assert queue.due_in_seconds() == pytest.approx(0.01)
    queue.close("silent")
    assert queue.due_in_seconds() == 0


def test_an_exchange_of_small_batches_is_in_the_next_batch_beside_one_of_large_ones(
    queue: RowQueue[str, str], clock: Clock
) -> None:
    queue.add("a", "large", 100_000, clock())
    queue.take()
    queue.add("b", "small", 64, clock())
    assert Piece("small", 0, 64) in queue.take()


def test_exchanges_share_batches_evenly_as_long_as_all_have_rows(clock: Clock) -> None:
    queue = RowQueue[int, int](512, 0.01, clock)
    for exchange in range(3):
        queue.open(exchange)
        queue.add(exchange, exchange, 10_000, clock())
    rows = Counter[int]()
    for _ in range(30):
        for piece in queue.take():
            rows[piece.request] += piece.rows
    assert max(rows.values()) - min(rows.values()) <= 512


def test_of_many_exchanges_the_longest_without_a_turn_come_first(clock: Clock) -> None:
    queue = RowQueue[int, int](512, 0.01, clock)
    for exchange in range(16):
        queue.open(exchange)
        queue.add(exchange, exchange, 64, clock())
    first = {piece.request for piece in queue.take()}
    for exchange in first:
        queue.add(exchange, exchange, 64, clock())
    assert {piece.request for piece in queue.take()} == set(range(16)) - first


def test_sixteen_exchanges_of_small_batches_make_large_ones_and_nobody_waits_longer_than_configured(
    clock: Clock,
) -> None:
    """Each exchange sends 64 rows, and more a while after the answer; a call takes 40 ms. One exchange is slow."""
    queue = RowQueue[int, int](1024, 0.1, clock)
    think_seconds = [0.001 * (1 + exchange % 7) for exchange in range(15)] + [5.0]
    sends_at = [clock() + 0.002 * exchange for exchange in range(16)]
    for exchange in range(16):
        queue.open(exchange)
    for _ in range(200):
        due_in_seconds = queue.due_in_seconds()
        next_sender = min(range(16), key=lambda exchange: sends_at[exchange])
        if due_in_seconds is None or sends_at[next_sender] <= clock() + due_in_seconds:
            clock.seconds = max(clock(), sends_at[next_sender])
            queue.add(next_sender, next_sender, 64, clock())
            sends_at[next_sender] = math.inf
            continue
        clock.seconds += due_in_seconds
        answered = {piece.request for piece in queue.take()}
        clock.seconds += 0.04
        for exchange in answered:
            sends_at[exchange] = clock() + think_seconds[exchange]
    batches = queue.record.batches
    assert sum(batches.counts) > 10
    assert sum(batches.counts[: batches.bounds.index(512) + 1]) == 0
    assert queue.record.waits.at_most(0.99) <= 0.1


def test_the_rows_of_an_exchange_keep_their_order(queue: RowQueue[str, str], clock: Clock) -> None:
    for number in range(5):
        queue.add("a", f"a{number}", 300, clock())
        queue.add("b", f"b{number}", 77, clock())
    seen = [piece for taken in iter(queue.take, ()) for piece in taken]
    for exchange, rows in (("a", 300), ("b", 77)):
        own = [
            (piece.request, piece.start + row)
            for piece in seen
            if piece.request.startswith(exchange)
            for row in range(piece.rows)
        ]
        assert own == [(f"{exchange}{number}", row) for number, row in itertools.product(range(5), range(rows))]
    assert queue.rows == 0


def test_a_suspect_is_joined_with_nobody(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "suspect", 10, clock(), is_alone=True)
    queue.add("b", "innocent", 10, clock())
    assert queue.due_in_seconds() == 0
    assert queue.take() == [Piece("suspect", 0, 10)]
    assert queue.take() == [Piece("innocent", 0, 10)]


def test_what_comes_before_a_suspect_does_not_carry_it_along(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "innocent", 10, clock())
    queue.add("a", "suspect", 10, clock(), is_alone=True)
    queue.add("b", "other", 10, clock())
    assert queue.take() == [Piece("innocent", 0, 10), Piece("other", 0, 10)]
    assert queue.take() == [Piece("suspect", 0, 10)]


def test_an_exchange_that_ends_takes_its_rows_with_it(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 300, clock())
    queue.add("b", "second", 7, clock())
    queue.close("a")
    assert queue.rows == 7
    assert queue.take() == [Piece("second", 0, 7)]


def test_what_is_left_of_a_failed_request_is_dropped_and_later_ones_are_not(
    queue: RowQueue[str, str], clock: Clock
) -> None:
    queue.add("a", "failed", 1000, clock())
    queue.add("a", "later", 5, clock())
    queue.take()
    queue.drop("a", "failed")
    assert queue.take() == [Piece("later", 0, 5)]
    queue.add("a", "only", 1000, clock())
    queue.drop("a", "only")
    assert queue.due_in_seconds() is None
    assert queue.rows == 0


def test_a_record_is_the_same_after_its_way_through_json(queue: RowQueue[str, str], clock: Clock) -> None:
    queue.add("a", "first", 600, clock() - 0.3)
    queue.take()
    assert BatchRecord.from_plain(queue.record.to_plain()) == queue.record
    assert queue.record.batches.at_most(0.99) == 512
    assert queue.record.waits.at_most(0.99) == 0.5
    assert BatchRecord().waits.at_most(0.99) == 0
