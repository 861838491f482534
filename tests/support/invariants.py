# SPDX-License-Identifier: Apache-2.0
"""Invariants of rows, files, memory and credentials, for simulated clusters and for real processes.

The simulator (tests/simulation) and the soak (tests/programs/soak) report events to the checker, and pass it `fail`,
which handles a violation. The checker has no clock: callers pass the time of an event. Each row contains its tenant,
application, task, attempt and number, so that the checker can compare the row that arrives with the row that was due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

WRONG = -1
"""Number of a row whose value is not the function's result for the row."""


class Source(NamedTuple):
    """Task that hands over rows, in any of its attempts. The task numbers its rows from 1."""

    tenant: str
    application: str
    task: str


class Rows(NamedTuple):
    """Rows with consecutive numbers, as they describe themselves."""

    source: Source
    attempt: int
    first: int
    last: int

    def __str__(self) -> str:
        numbers = f"row {self.first}" if self.first == self.last else f"rows {self.first} to {self.last}"
        numbers = "a wrong row" if self.first == WRONG else numbers
        return f"{numbers} of {'/'.join(self.source)}, attempt {self.attempt}"


def runs(numbers: np.ndarray[Any, Any], *descriptions: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each stretch of rows with consecutive numbers and equal descriptions."""
    breaks = np.diff(numbers) != 1
    for column in descriptions:
        breaks |= column[1:] != column[:-1]
    edges = [0, *(int(index) + 1 for index in np.flatnonzero(breaks)), len(numbers)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield begin, end - 1


@dataclass(slots=True)
class _Delivery:
    rows: int
    attempt: int | None
    due: int = 1


class Invariants:
    """Checker of one run."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        """Create a checker; `fail` takes a violation in words, and may raise."""
        self.fail = fail
        self._deliveries: dict[Source, _Delivery] = {}
        self._published: set[str] = set()
        self._finished: dict[str, tuple[Source, int]] = {}
        self._revoked: dict[str, float] = {}

    # Rows: none is lost or delivered twice, and each task has its own, in order and of one attempt.

    def begins(self, source: Source, rows: int, attempt: int | None = None) -> None:
        """Expect this many rows for a task. If `attempt` is None, the attempt of the first row counts."""
        self._deliveries[source] = _Delivery(rows, attempt)

    def delivered(self, to: Source, rows: Rows) -> None:
        """Check rows that a task receives."""
        delivery = self._deliveries.get(to)
        if delivery is None:
            self.fail(f"{'/'.join(to)} expects nothing and was given {rows}")
            return
        if delivery.attempt is None:
            delivery.attempt = rows.attempt
        is_own = rows.source == to and rows.attempt == delivery.attempt
        if not is_own or rows.first != delivery.due or rows.last > delivery.rows:
            due = f"row {delivery.due} of {delivery.rows}" if delivery.due <= delivery.rows else "the end"
            self.fail(f"{'/'.join(to)}, attempt {delivery.attempt}, was given {rows} where {due} was due")
        if is_own:
            following = delivery.due if rows.first == WRONG else rows.last
            delivery.due = min(following, delivery.rows) + 1

    def ends(self, source: Source) -> None:
        """Check a task that has ended successfully."""
        delivery = self._deliveries.pop(source)
        if delivery.due != delivery.rows + 1:
            self.fail(f"{'/'.join(source)} has ended, and row {delivery.due} of {delivery.rows} was due")

    # Files: none is torn or published twice, and only a file that its task has finished is published.

    def finished(self, name: str, source: Source, rows: int) -> None:
        """Record that a task has asked to publish its file, which has this many rows."""
        self._finished[name] = source, rows

    def published(self, name: str, content: Sequence[Rows]) -> None:
        """Check that a published file has all rows of its task, and that they come from one attempt."""
        if name in self._published:
            self.fail(f"{name} is published twice")
        self._published.add(name)
        source, rows = self._finished.get(name, (None, 0))
        if source is None:
            self.fail(f"{name} is published, and its task never finished it")
        elif [(each.source, each.first, each.last) for each in content] != ([(source, 1, rows)] if rows else []):
            has = "; ".join(map(str, content[:3])) or "nothing"
            self.fail(f"{name} is torn: it should have {rows} rows of {'/'.join(source)} and has {has}")

    def confirmed(self, name: str) -> None:
        """Check a file for which its task has received a receipt."""
        if name not in self._published:
            self.fail(f"{name} has a receipt and does not exist")

    # Memory and other counts.

    def holds(self, who: str, held_bytes: float, most_bytes: float) -> None:
        """Check the memory that a service holds."""
        if not 0 <= held_bytes <= most_bytes:
            self.fail(f"{who} holds {held_bytes} bytes of a quota of {most_bytes}")

    def settles(self, who: str, counts: Mapping[str, float]) -> None:
        """Check that all counts of a service are zero once nothing is left to do for it."""
        if any(counts.values()):
            self.fail(f"{who} is idle and still counts {dict(counts)}")

    # Credentials and waits.

    def revoked(self, credential: str, at_seconds: float) -> None:
        """Record that a credential was revoked."""
        self._revoked.setdefault(credential, at_seconds)

    def granted(self, credential: str) -> None:
        """Record that a revoked credential is valid again."""
        self._revoked.pop(credential, None)

    def opens(self, what: str, credential: str, at_seconds: float, bound_seconds: float) -> None:
        """Check an opening with a credential: after the revocation, it may succeed for at most `bound_seconds`."""
        revoked = self._revoked.get(credential)
        if revoked is not None and at_seconds > revoked + bound_seconds:
            self.fail(f"{what} was opened for {credential}, {at_seconds - revoked:.3f} s after it was revoked")

    def waited(self, what: str, seconds: float, most_seconds: float) -> None:
        """Check the length of a wait."""
        if seconds > most_seconds:
            self.fail(f"{what} waited for {seconds:.3f} s, more than {most_seconds:g} s")
