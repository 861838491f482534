# SPDX-License-Identifier: Apache-2.0
"""Model of `Recovery`, which decides what to do about a call that ended early."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.client.retry_budget import RetryBudget

_FIRST_BACKOFF_MILLISECONDS = 50
_LONGEST_BACKOFF_MILLISECONDS = 4_000
_BACKOFF_DOUBLINGS = 10
_MOST_BUSY_PODS = 2
_NANOS_PER_MILLISECOND = 1_000_000
_NOTHING, _THE_SETUP = 0, -1


class Origin(enum.Enum):
    """Side that reported a failed call."""

    POOL = "POOL"
    CONNECTION = "CONNECTION"
    CLIENT = "CLIENT"


class Kind(enum.Enum):
    """Kinds of errors that recovery distinguishes; OTHER stands for all other kinds."""

    USER = "USER"
    WORKER = "WORKER"
    POOL_FULL = "POOL_FULL"
    POOL_BUSY = "POOL_BUSY"
    QUOTA = "QUOTA"
    POOL_UNAVAILABLE = "POOL_UNAVAILABLE"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    DEADLINE = "DEADLINE"
    PROTOCOL = "PROTOCOL"
    SINK = "SINK"
    INTERNAL = "INTERNAL"


class Reach(enum.Enum):
    """What the client knows about an endpoint that is unreachable now."""

    UNRESOLVED = "UNRESOLVED"
    RESOLVED = "RESOLVED"
    ANSWERED = "ANSWERED"


class Failure(NamedTuple):
    """Reason why a call ended."""

    kind: Kind
    origin: Origin
    is_in_band: bool = False
    sequence: int = 0
    """Number of the batch that the pool blames; 0 if the pool blames no batch."""
    is_refused_connection: bool = False

    @property
    def is_without_room(self) -> bool:
        return self.kind in (Kind.POOL_FULL, Kind.POOL_BUSY, Kind.QUOTA)

    @property
    def is_loss(self) -> bool:
        """Whether the worker or the connection was lost."""
        return self.origin is Origin.CONNECTION or self.kind in (Kind.WORKER, Kind.POOL_UNAVAILABLE)


class Progress(NamedTuple):
    """Progress of a call until it ended."""

    work_done: bool
    base: int
    started_batch: int
    replayable: bool
    reach: Reach


class Again(NamedTuple):
    """Make a new call after a pause."""

    pause_milliseconds: int
    is_retry: bool
    """Whether the call counts as a retry: it is neither a replay nor the first call at another pod."""


class WithAnotherToken(NamedTuple):
    """Make a new call at once if the token has changed."""


class GiveUp(NamedTuple):
    """Fail the exchange."""


Decision = Again | WithAnotherToken | GiveUp


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Options of a client that recovery uses."""

    acquire_milliseconds: int = 600_000
    connect_milliseconds: int = 10_000
    max_replays: int = 3


class Recovery:
    """Policy of one exchange."""

    def __init__(
        self, timeouts: Timeouts, budget: RetryBudget, now_nanos: int, between: Callable[[int, int], int]
    ) -> None:
        """Begin an exchange; `between` returns a random number between its two arguments, both included."""
        self._timeouts = timeouts
        self._budget = budget
        self._between = between
        self._acquiring_since_nanos = now_nanos
        self._acquire_tries = 0
        self._busy_pods = 0
        self._replays_in_a_row = 0
        self._suspect = _NOTHING
        self._token_refused = False

    @property
    def may_try_elsewhere(self) -> bool:
        """Whether to ask another pod if the next one is busy."""
        return self._busy_pods < _MOST_BUSY_PODS

    def progressed(self) -> None:
        """Record that a batch was answered."""
        self._replays_in_a_row = 0
        self._suspect = _NOTHING

    def waited(self, nanos: int) -> None:
        """Exclude the time spent in the peer's queue from the acquire timeout."""
        self._acquiring_since_nanos += nanos

    def decide(self, failure: Failure, progress: Progress, hint: int | None, now_nanos: int) -> Decision:
        """Decide what to do after a failure."""
        if failure.origin is Origin.CLIENT:
            return GiveUp()
        refused_before = self._token_refused and not failure.is_in_band
        self._token_refused = failure.kind is Kind.UNAUTHENTICATED and not progress.work_done
        if self._token_refused and not refused_before:
            return WithAnotherToken()
        is_refusal = failure.is_without_room or failure.kind is Kind.POOL_UNAVAILABLE
        if not progress.work_done and (is_refusal or failure.origin is Origin.CONNECTION):
            return self._acquire_again(failure, progress.reach, hint, now_nanos)
        if failure.is_loss and progress.replayable:
            return self._replay(failure, progress, now_nanos)
        return GiveUp()

    def _acquire_again(self, failure: Failure, reach: Reach, hint: int | None, now_nanos: int) -> Decision:
        if failure.kind is Kind.POOL_BUSY and self.may_try_elsewhere:
            self._busy_pods += 1
            return Again(0, is_retry=False)
        limit_nanos = self._acquire_limit(failure, reach) * _NANOS_PER_MILLISECOND
        # Java's Duration.toMillis rounds towards negative infinity, as this division does.
        rest = (limit_nanos - (now_nanos - self._acquiring_since_nanos)) // _NANOS_PER_MILLISECOND
        if rest <= 0:
            return GiveUp()
        backoff = self._between(*self.backoff_bounds(hint))
        pause = max(backoff, self._budget.take_nanos(now_nanos) // _NANOS_PER_MILLISECOND)
        self._acquire_tries += 1
        return Again(min(pause, rest), is_retry=True)

    def _acquire_limit(self, failure: Failure, reach: Reach) -> int:
        timeouts = self._timeouts
        if failure.origin is not Origin.CONNECTION:
            return timeouts.acquire_milliseconds
        restarts = reach is Reach.ANSWERED or (reach is Reach.RESOLVED and failure.is_refused_connection)
        return (
            max(timeouts.acquire_milliseconds, timeouts.connect_milliseconds)
            if restarts
            else (timeouts.connect_milliseconds)
        )

    def backoff_bounds(self, hint: int | None) -> tuple[int, int]:
        """Return the shortest and the longest allowed pause before the next try, in milliseconds."""
        wanted = _FIRST_BACKOFF_MILLISECONDS if hint is None else hint
        first = min(max(1, wanted), self._timeouts.acquire_milliseconds)
        grown = min(max(first, _LONGEST_BACKOFF_MILLISECONDS), first << min(self._acquire_tries, _BACKOFF_DOUBLINGS))
        least = grown // 2 if hint is None else max(first, grown // 2)
        return least, grown + grown // 2

    def _replay(self, failure: Failure, progress: Progress, now_nanos: int) -> Decision:
        blamed = _blamed(failure, progress)
        if blamed != _NOTHING and blamed == self._suspect:
            return GiveUp()
        self._suspect = blamed or self._suspect
        if self._replays_in_a_row >= self._timeouts.max_replays:
            return GiveUp()
        self._replays_in_a_row += 1
        self._acquire_tries = 0
        self._busy_pods = 0
        self._acquiring_since_nanos = now_nanos
        return Again(0, is_retry=False)


def _blamed(failure: Failure, progress: Progress) -> int:
    """Return the batch to blame for a lost worker, or `_THE_SETUP` or `_NOTHING`."""
    if failure.kind is Kind.POOL_UNAVAILABLE and failure.origin is Origin.POOL:
        return _NOTHING
    if failure.sequence > 0:
        return progress.base + failure.sequence
    if progress.started_batch > 0:
        return progress.started_batch
    return _THE_SETUP if failure.origin is Origin.POOL else _NOTHING
