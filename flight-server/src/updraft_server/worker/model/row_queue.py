# SPDX-License-Identifier: Apache-2.0
"""Which rows of which exchanges make the next batch of a model, and when: policy alone.

A batch is due when there are rows for a full one, when the first rows in the queue have waited for others for as long
as the author allows, or when every exchange has rows in the queue, so that waiting brings no more. While the model
works on a batch nobody waits for others: without that rule, exchanges that were late once would go on taking turns with
those that were not, each with a part of the rows. Exchanges take turns, a
part of a batch at a time: one that sends large batches does not keep others waiting. The rows of an exchange keep
their order.
"""

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from updraft_server.ipc.batch_record import BatchRecord

ExchangeT = TypeVar("ExchangeT", bound=Hashable)
RequestT = TypeVar("RequestT")

# A turn is this part of a full batch.
_TURNS_PER_BATCH = 8
_LONGEST_WAIT_SECONDS = 3600.0


class Piece(NamedTuple, Generic[RequestT]):
    """Rows of one request in a batch."""

    request: RequestT
    """As it was added."""
    start: int
    """The first of them, among the request's rows."""
    rows: int


@dataclasses.dataclass(slots=True)
class _Waiting(Generic[RequestT]):
    """What is left of a request in the queue."""

    request: RequestT
    rows: int
    """All of the request's."""
    sent_seconds: float
    is_alone: bool
    start: int = 0
    """The first of its rows that is left."""

    @property
    def left(self) -> int:
        return self.rows - self.start


class RowQueue(Generic[ExchangeT, RequestT]):
    """The rows that wait for a model, of all exchanges."""

    def __init__(self, rows: int, wait_seconds: float, clock: Callable[[], float]) -> None:
        """An empty queue.

        Args:
            rows: Of a full batch.
            wait_seconds: How long rows may wait for others.
            clock: The time in seconds, as senders of rows know it too.
        """
        self.record = BatchRecord()
        self._full_rows = rows
        self._turn_rows = max(1, rows // _TURNS_PER_BATCH)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._waiting: dict[ExchangeT, deque[_Waiting[RequestT]]] = {}
        """Of every exchange that is open, in the order in which they sent."""
        self._turns: deque[ExchangeT] = deque()
        """Exchanges with rows in the queue; the next one comes first."""
        self.rows = 0
        """All that wait."""
        self._free_seconds = -math.inf
        """When the model had done its last batch."""

    def open(self, exchange: ExchangeT) -> None:
        """An exchange has begun, and may send rows at any time."""
        self._waiting[exchange] = deque()

    def close(self, exchange: ExchangeT) -> None:
        """An exchange has ended: what it has in the queue is dropped."""
        self.rows -= sum(waiting.left for waiting in self._waiting.pop(exchange))
        if exchange in self._turns:
            self._turns.remove(exchange)

    def add(
        self, exchange: ExchangeT, request: RequestT, rows: int, sent_seconds: float, *, is_alone: bool = False
    ) -> None:
        """Put rows, at least one, behind the others of their exchange.

        `is_alone`: they are joined with nobody's, since their last batch has ended a model process.
        """
        waiting = self._waiting[exchange]
        if not waiting:
            self._turns.append(exchange)
        now = self._clock()
        # A sender can claim anything.
        sent_seconds = min(max(sent_seconds, now - _LONGEST_WAIT_SECONDS), now)
        waiting.append(_Waiting(request, rows, sent_seconds, is_alone))
        self.rows += rows

    def drop(self, exchange: ExchangeT, request: RequestT) -> None:
        """Forget what is left of a request."""
        waiting = self._waiting[exchange]
        kept = deque(each for each in waiting if each.request is not request)
        self.rows -= sum(each.left for each in waiting) - sum(each.left for each in kept)
        self._waiting[exchange] = kept
        if waiting and not kept:
            self._turns.remove(exchange)

    def done(self) -> None:
        """The model has done the batch that was taken last."""
        self._free_seconds = self._clock()

    def due_in_seconds(self) -> float | None:
        """When to take the next batch, zero for now; None while nothing waits."""
        if not self._turns:
            return None
        heads = [self._waiting[exchange][0] for exchange in self._turns]
        nobody_else = len(heads) == len(self._waiting)
        if self.rows >= self._full_rows or nobody_else or heads[0].is_alone:
            return 0.0
        first_seconds = max(self._free_seconds, min(head.sent_seconds for head in heads))
        return max(0.0, first_seconds + self._wait_seconds - self._clock())

    def take(self) -> Sequence[Piece[RequestT]]:
        """The rows of the next batch, those of a request together; empty where nothing waits."""
        if not self._turns:
            return ()
        granted = self._grant()
        now = self._clock()
        pieces: list[Piece[RequestT]] = []
        for exchange, rows in granted.items():
            pieces.extend(self._take_of(self._waiting[exchange], rows, now))
            if not self._waiting[exchange]:
                self._turns.remove(exchange)
        self.record.batches.add(sum(granted.values()))
        return pieces

    def _grant(self) -> Mapping[ExchangeT, int]:
        """How many rows of which exchange the next batch has, a turn after the other."""
        first = self._turns[0]
        head = self._waiting[first][0]
        if head.is_alone:
            self._turns.rotate(-1)
            return {first: min(head.left, self._full_rows)}
        left = {exchange: self._joinable(exchange) for exchange in self._turns}
        granted = Counter[ExchangeT]()
        room = self._full_rows
        while room and any(left.values()):
            exchange = self._turns[0]
            if not left[exchange] and granted[exchange] == 0:
                # It has to be alone, and is next.
                break
            rows = min(self._turn_rows, left[exchange], room)
            granted[exchange] += rows
            left[exchange] -= rows
            room -= rows
            self._turns.rotate(-1)
        return granted

    def _joinable(self, exchange: ExchangeT) -> int:
        """Rows of an exchange before the first that is alone."""
        rows = 0
        for waiting in self._waiting[exchange]:
            if waiting.is_alone:
                break
            rows += waiting.left
        return rows

    def _take_of(self, waiting: deque[_Waiting[RequestT]], rows: int, now_seconds: float) -> Sequence[Piece[RequestT]]:
        pieces = []
        self.rows -= rows
        while rows:
            head = waiting[0]
            taken = min(rows, head.left)
            if not head.start:
                self.record.waits.add(now_seconds - head.sent_seconds)
            pieces.append(Piece(head.request, head.start, taken))
            head.start += taken
            rows -= taken
            if not head.left:
                waiting.popleft()
        return pieces
