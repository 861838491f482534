# SPDX-License-Identifier: Apache-2.0
"""Token bucket: a budget that allows bursts and limits the rate in the long run."""

import time
from collections.abc import Callable


class TokenBucket:
    """Tokens up to `capacity`, refilled by `per_second`; full at the start."""

    def __init__(self, per_second: float, capacity: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._clock = clock
        self.refill()

    def refill(self) -> None:
        """Fill the bucket up at once."""
        self._tokens = self._capacity
        self._looked_seconds = self._clock()

    def take(self, tokens: float) -> bool:
        """Take all of the tokens or none; returns False if there are too few."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._looked_seconds) * self._per_second)
        self._looked_seconds = now
        if tokens > self._tokens:
            return False
        self._tokens -= tokens
        return True
