# SPDX-License-Identifier: Apache-2.0
"""Record of a model process's batches: how many rows each batch contained, and how long rows waited for a batch."""

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

ROWS_BOUNDS = tuple(2.0**power for power in range(17))
"""Upper bounds, in rows, of the buckets of a histogram of batches."""
SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds, in seconds, of the buckets of a histogram of waits."""


@dataclasses.dataclass(slots=True)
class Counts:
    """Histogram: for each bound, the number of values up to it and above the previous bound."""

    bounds: Sequence[float]
    counts: list[int] = dataclasses.field(default_factory=list)
    """One count for each bound, and one count for values above the last bound."""
    total: float = 0.0
    """Sum of all values."""

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def at_most(self, share: float) -> float:
        """Return the smallest bound that at least `share` of the values do not exceed; 0 if there are no values."""
        wanted, seen = share * sum(self.counts), 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            if seen >= wanted:
                return bound if seen else 0.0
        return math.inf


@dataclasses.dataclass(slots=True)
class BatchRecord:
    """Batches of one model process since its start, or of several processes together."""

    batches: Counts = dataclasses.field(default_factory=lambda: Counts(ROWS_BOUNDS))
    """Batches by number of rows."""
    waits: Counts = dataclasses.field(default_factory=lambda: Counts(SECONDS_BOUNDS))
    """Waits in seconds, from the moment when a worker sent rows until the function received the first of these rows."""

    def add(self, other: "BatchRecord") -> None:
        """Add the counts of another record."""
        for own, others in ((self.batches, other.batches), (self.waits, other.waits)):
            own.counts = [count + more for count, more in zip(own.counts, others.counts, strict=True)]
            own.total += others.total

    def to_plain(self) -> list[Any]:
        """Return the record in a form that JSON can encode."""
        return [[part.counts, part.total] for part in (self.batches, self.waits)]

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> "BatchRecord":
        """Return the record that `to_plain` has written; raises ValueError or TypeError."""
        (rows, rows_total), (seconds, seconds_total) = plain
        return cls(_counts(ROWS_BOUNDS, rows, rows_total), _counts(SECONDS_BOUNDS, seconds, seconds_total))


def _counts(bounds: Sequence[float], counts: Sequence[int], total: float) -> Counts:
    if len(counts) != len(bounds) + 1:
        raise ValueError(f"{len(counts)} counts for {len(bounds)} bounds")
    return Counts(bounds, [int(count) for count in counts], float(total))
