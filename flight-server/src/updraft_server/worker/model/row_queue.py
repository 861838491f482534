# SPDX-License-Identifier: Apache-2.0
"""Policy for a model's batches: which rows of which exchanges form the next batch, and when the batch is due.

A batch is due if there are enough rows for a full batch; if the oldest rows in the queue have waited for as long as the
author allows; if every open exchange has rows in the queue, so that waiting would bring no more rows; or if the next
rows have to run alone.

The waiting time starts when the model becomes free, not before. Otherwise, exchanges that were late once would stay
late: batches of their rows would alternate with batches of the other exchanges' rows, and no batch would be full.

Exchanges take turns, each for a fraction of a batch, so that an exchange with large batches does not keep other
exchanges waiting. The rows of an exchange keep their order.
"""

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from updraft_server.ipc.batch_record import BatchRecord

ExchangeT = TypeVar("ExchangeT", bound=Hashable)
RequestT = TypeVar("RequestT")

# A full batch is divided into this many turns.
_TURNS_PER_BATCH = 8
_LONGEST_WAIT_SECONDS = 3600.0


class Piece(NamedTuple, Generic[RequestT]):
    """Rows of one request in a batch."""

    request: RequestT
    """Request as it was added."""
    start: int
    """Index of the first row among the request's rows."""
    rows: int


@dataclasses.dataclass(slots=True)
class _Waiting(Generic[RequestT]):
    """Remaining rows of a request in the queue."""

    request: RequestT
    rows: int
    """Number of all rows of the request."""
    sent_seconds: float
    is_alone: bool
    start: int = 0
    """Index of the first row that remains."""

    @property
    def left(self) -> int:
        return self.rows - self.start


class RowQueue(Generic[ExchangeT, RequestT]):
    """Queue of the rows that wait for a model, from all exchanges."""

    def __init__(self, rows: int, wait_seconds: float, clock: Callable[[], float]) -> None:
        """Create an empty queue.

        Args:
            rows: Rows of a full batch.
            wait_seconds: How long rows may wait for rows of other exchanges.
            clock: Returns the time in seconds, on the same clock that the senders of rows use.
        """
        self.record = BatchRecord()
        self._full_rows = rows
        self._turn_rows = max(1, rows // _TURNS_PER_BATCH)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._waiting: dict[ExchangeT, deque[_Waiting[RequestT]]] = {}
        """Waiting requests of every open exchange, in the order in which they were sent."""
        self._turns: deque[ExchangeT] = deque()
        """Exchanges with rows in the queue; the exchange whose turn is next comes first."""
        self.rows = 0
        """Number of all waiting rows."""
        self._free_seconds = -math.inf
        """Time when the model finished its last batch."""

    def open(self, exchange: ExchangeT) -> None:
        """Add an exchange, which may send rows from now on."""
        self._waiting[exchange] = deque()

    def close(self, exchange: ExchangeT) -> None:
        """Remove an exchange that has ended, and drop its rows in the queue."""
        self.rows -= sum(waiting.left for waiting in self._waiting.pop(exchange))
        if exchange in self._turns:
            self._turns.remove(exchange)

    def add(
        self, exchange: ExchangeT, request: RequestT, rows: int, sent_seconds: float, *, is_alone: bool = False
    ) -> None:
        """Add rows, at least one, behind the waiting rows of their exchange.

        `is_alone` keeps the rows out of batches with other requests' rows. If the model process dies while it runs
        them, this request is to blame.
        """
        waiting = self._waiting[exchange]
        if not waiting:
            self._turns.append(exchange)
        now = self._clock()
        # Limit the time to a plausible range, because a faulty sender could send any number.
        sent_seconds = min(max(sent_seconds, now - _LONGEST_WAIT_SECONDS), now)
        waiting.append(_Waiting(request, rows, sent_seconds, is_alone))
        self.rows += rows

    def drop(self, exchange: ExchangeT, request: RequestT) -> None:
        """Drop the remaining rows of a request."""
        waiting = self._waiting[exchange]
        kept = deque(each for each in waiting if each.request is not request)
        self.rows -= sum(each.left for each in waiting) - sum(each.left for each in kept)
        self._waiting[exchange] = kept
        if waiting and not kept:
            self._turns.remove(exchange)

    def done(self) -> None:
        """Record that the model has finished the last batch that was taken."""
        self._free_seconds = self._clock()

    def due_in_seconds(self) -> float | None:
        """Return the time until the next batch is due; 0 means now, None means that no rows wait."""
        if not self._turns:
            return None
        heads = [self._waiting[exchange][0] for exchange in self._turns]
        nobody_else = len(heads) == len(self._waiting)
        if self.rows >= self._full_rows or nobody_else or heads[0].is_alone:
            return 0.0
        first_seconds = max(self._free_seconds, min(head.sent_seconds for head in heads))
        return max(0.0, first_seconds + self._wait_seconds - self._clock())

    def take(self) -> Sequence[Piece[RequestT]]:
        """Remove and return the rows of the next batch, one piece for each request; empty if no rows wait."""
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
        """Return how many rows of each exchange the next batch contains, chosen turn by turn."""
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
                # The next rows of this exchange have to run alone. End this batch, so that they form the following one.
                break
            rows = min(self._turn_rows, left[exchange], room)
            granted[exchange] += rows
            left[exchange] -= rows
            room -= rows
            self._turns.rotate(-1)
        return granted

    def _joinable(self, exchange: ExchangeT) -> int:
        """Return the number of an exchange's rows before the first request that has to run alone."""
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
