# SPDX-License-Identifier: Apache-2.0
"""A budget that refills: so much at once, so much per second in the long run."""

import time
from collections.abc import Callable


class TokenBucket:
    """Tokens up to `capacity`, refilled by `per_second`. It begins full."""

    def __init__(self, per_second: float, capacity: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._clock = clock
        self.refill()

    def refill(self) -> None:
        """Fill it up at once."""
        self._tokens = self._capacity
        self._looked_seconds = self._clock()

    def take(self, tokens: float) -> bool:
        """Take tokens, all or none; False when there are too few."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._looked_seconds) * self._per_second)
        self._looked_seconds = now
        if tokens > self._tokens:
            return False
        self._tokens -= tokens
        return True
