# SPDX-License-Identifier: Apache-2.0
"""Model of `RequestLog`: the unanswered batches of an exchange, kept for a replay."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Replay(enum.Enum):
    """Ways in which an exchange may continue after it lost a call."""

    REPLAY = "REPLAY"
    FROM_THE_START = "FROM_THE_START"
    NEVER = "NEVER"


class Batch(NamedTuple):
    """Batch of a task. `content` identifies the batch's rows; the pool's answer repeats it."""

    rows: int
    body_bytes: int
    content: object = None


class MalformedReplyError(Exception):
    """Raised when the pool breaks the protocol."""


class RequestLog:
    """Batches of one exchange."""

    def __init__(self, window_batches: int, window_bytes: int, replay_bytes: int, replay: Replay) -> None:
        self._window_batches = window_batches
        self._window_bytes = window_bytes
        self._replay_bytes = replay_bytes
        self.one_to_one = replay is Replay.REPLAY
        self.replayable = replay is not Replay.NEVER
        self._held: dict[int, Batch] = {}
        self.sent = 0
        self.transmitted = 0
        self._consumed = 0
        self.answered = 0
        self._in_flight_bytes = 0
        self._unanswered_bytes = 0
        self.forgotten_bytes = 0

    @property
    def has_room(self) -> bool:
        in_flight = self.sent - self._consumed
        return in_flight == 0 or (in_flight < self._window_batches and self._in_flight_bytes < self._window_bytes)

    def add(self, batch: Batch) -> None:
        self.sent += 1
        self._held[self.sent] = batch
        self._in_flight_bytes += batch.body_bytes

    def consumed_through(self, number: int) -> None:
        """Record that the function has consumed every batch up to this number."""
        for taken in range(self._consumed + 1, number + 1):
            size = self._held[taken].body_bytes
            self._in_flight_bytes -= size
            self._unanswered_bytes += size
            if not self.replayable:
                self._release(taken)
        self._consumed = max(self._consumed, number)
        too_much = self._unanswered_bytes > self._replay_bytes and self._consumed - self.answered > 1
        if self.replayable and too_much:
            self.forgotten_bytes = self._unanswered_bytes
            self._forget()

    def result_taken(self) -> None:
        """Record that the task has taken a result."""
        if not self.one_to_one and self.replayable:
            self._forget()

    def _forget(self) -> None:
        self.replayable = False
        self._unanswered_bytes = 0
        for number in [number for number in self._held if number <= self._consumed]:
            del self._held[number]

    def answered_next(self, rows: int) -> None:
        """Record that a one-to-one function has answered the next batch with this many rows."""
        if self.answered == self.sent:
            raise MalformedReplyError("more answers than batches")
        batch = self._held.get(self.answered + 1)
        if batch is not None and batch.rows != rows:
            raise MalformedReplyError("an answer with another number of rows")
        self.answered += 1
        self.consumed_through(self.answered)
        self._release(self.answered)

    def _release(self, number: int) -> None:
        batch = self._held.pop(number, None)
        if batch is not None:
            self._unanswered_bytes -= batch.body_bytes

    def untransmitted(self) -> Batch | None:
        """Return the first batch that the current call has not sent."""
        return self._held[self.transmitted + 1] if self.transmitted < self.sent else None

    def transmit(self) -> None:
        """Record that the current call has sent the batch that `untransmitted` returns."""
        self.transmitted += 1

    def restart(self) -> None:
        """Reset for a new call."""
        self._consumed = min(self.answered, self._consumed)
        self.transmitted = self.answered if self.one_to_one else 0
        self._unanswered_bytes = 0
        self._in_flight_bytes = sum(batch.body_bytes for batch in self._held.values())
