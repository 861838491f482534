# SPDX-License-Identifier: Apache-2.0
"""Model of `CreditWindow`: the batches of a file, and the credit for them."""

from __future__ import annotations

from collections import deque

from tests.simulation.client.request_log import Batch, MalformedReplyError

_MOST_UNANSWERED_ASKS = 16


class CreditWindow:
    """Batches of one file."""

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self._waiting: deque[Batch] = deque()
        self._waiting_bytes = 0
        self._asked = 0
        self._credit = 0
        self.sent = 0
        self.sent_rows = 0
        self._stored = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def is_stored(self) -> bool:
        return not self._waiting and self._stored == self.sent

    @property
    def has_credit(self) -> bool:
        return self.sent < self._credit

    def has_room(self, size: int) -> bool:
        """Return whether one more batch of this size may wait in this window."""
        return not self._waiting or self._waiting_bytes + size <= self._window_bytes

    def add(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.body_bytes

    def restart(self) -> None:
        """Reset for a new call."""
        self._asked = 0
        self._credit = 0

    def next_ask(self) -> int | None:
        """Return the size of the next batch to ask credit for; None if no ask may be sent."""
        if self._asked >= self.sent + len(self._waiting) or self._asked - self._credit >= _MOST_UNANSWERED_ASKS:
            return None
        batch = self._waiting[self._asked - self.sent]
        self._asked += 1
        return batch.body_bytes

    def send(self) -> Batch:
        """Return the next batch, which the caller has to send now."""
        batch = self._waiting.popleft()
        self._waiting_bytes -= batch.body_bytes
        self.sent += 1
        self.sent_rows += batch.rows
        return batch

    def take_credit(self, number: int) -> None:
        """Record credit for every batch up to this number; zero stands for no batch."""
        if number and not self._credit <= number <= self._asked:
            raise MalformedReplyError("credit for batches that were not asked for")
        self._credit = max(self._credit, number)

    def take_stored(self, number: int) -> None:
        """Record that the writer has stored every batch up to this number."""
        if number > self.sent:
            raise MalformedReplyError("stored batches that were not sent")
        self._stored = max(self._stored, number)
