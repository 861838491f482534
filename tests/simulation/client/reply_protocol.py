# SPDX-License-Identifier: Apache-2.0
"""Model of `ReplyProtocol`, which checks which messages the pool may send in which state, and the counts."""

from __future__ import annotations

import enum

from tests.simulation.client.request_log import MalformedReplyError


class State(enum.Enum):
    """State of the pool's side."""

    INIT = "INIT"
    PROVIDED = "PROVIDED"
    ADMITTED = "ADMITTED"
    STREAMING = "STREAMING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class Event(enum.Enum):
    """Event reported by the pool."""

    WANTED = "WANTED"
    PROVIDED = "PROVIDED"
    ADMITTED = "ADMITTED"
    SCHEMA = "SCHEMA"
    BATCH = "BATCH"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


_UNDECIDED = (State.INIT, State.PROVIDED, State.ADMITTED, State.STREAMING)
TRANSITIONS = {
    (State.INIT, Event.WANTED): State.INIT,
    (State.INIT, Event.PROVIDED): State.PROVIDED,
    (State.INIT, Event.ADMITTED): State.ADMITTED,
    (State.PROVIDED, Event.ADMITTED): State.ADMITTED,
    (State.ADMITTED, Event.SCHEMA): State.STREAMING,
    (State.STREAMING, Event.BATCH): State.STREAMING,
    **{(state, Event.FINISHED): State.FINISHED for state in _UNDECIDED},
    **{(state, Event.FAILED): State.FAILED for state in _UNDECIDED},
}


class ReplyProtocol:
    """Pool's side of one call."""

    def __init__(self) -> None:
        self.state = State.INIT
        self.consumed = 0
        self._batches = 0
        self._rows = 0

    def accept(self, event: Event | None, *, sequence: int = 0, rows: int = 0, consumed: int = 0) -> None:
        """Accept a message; None stands for a credit alone. Raises MalformedReplyError.

        For BATCH, `sequence` and `rows` are the batch's; for FINISHED, they are the totals that the pool announces.
        """
        if self.state in (State.FINISHED, State.FAILED):
            raise MalformedReplyError("a message after the last one")
        if consumed and consumed < self.consumed:
            raise MalformedReplyError("consumed batches went back")
        self.consumed = max(self.consumed, consumed)
        if event is None:
            return
        if event is Event.FINISHED and (sequence, rows) != (self._batches, self._rows):
            raise MalformedReplyError("the totals disagree")
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise MalformedReplyError(f"{event} in {self.state}")
        self.state = state
        if event is Event.BATCH:
            if sequence != self._batches + 1:
                raise MalformedReplyError(f"batch {sequence} after batch {self._batches}")
            self._batches = sequence
            self._rows += rows
