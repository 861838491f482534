# SPDX-License-Identifier: Apache-2.0
"""Model of `Circuit`, which limits how often the tasks of one executor try to connect to a dead address."""

from __future__ import annotations

from collections.abc import Callable

FREE_ATTEMPTS = 5
FIRST_INTERVAL_NANOS = 200_000_000
LONGEST_INTERVAL_NANOS = 2_000_000_000
_DOUBLINGS = 4


class Circuit:
    """Circuit breaker of one address."""

    def __init__(self, between: Callable[[int, int], int]) -> None:
        self._between = between
        self._attempts = 0
        self._next_nanos = 0

    @property
    def is_open(self) -> bool:
        """Whether attempts to connect have to wait."""
        return self._attempts >= FREE_ATTEMPTS

    def may_attempt(self, now_nanos: int) -> bool:
        """Return whether a task may try a failed connection again now. If it may, count the attempt."""
        if self.is_open and now_nanos < self._next_nanos:
            return False
        self._attempts += 1
        if self.is_open:
            doublings = min(_DOUBLINGS, self._attempts - FREE_ATTEMPTS)
            interval = min(LONGEST_INTERVAL_NANOS, FIRST_INTERVAL_NANOS << doublings)
            self._next_nanos = now_nanos + self._between(interval // 2, interval)
        return True

    def connected(self) -> None:
        """Record that the address has answered."""
        self._attempts = 0
