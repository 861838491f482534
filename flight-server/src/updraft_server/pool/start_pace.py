# SPDX-License-Identifier: Apache-2.0
"""Pace of worker starts: workers that fail to start, or die at once, must not make the pool spin."""

from collections import deque

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 2.0
MAX_FAILURES = 5
# A pool may lose all its workers twice in a second, and a few more, without being slowed down.
_SPARE_STARTS_PER_SECOND = 20


class StartPace:
    """Starts of one pool; policy alone, with the time handed in."""

    def __init__(self, workers: int) -> None:
        self._recent_starts: deque[float] = deque(maxlen=2 * workers + _SPARE_STARTS_PER_SECOND)
        self._failures = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether so many starts in a row have failed that a pool that is starting gives up."""
        return self._failures >= MAX_FAILURES

    def succeeded(self) -> None:
        """Record that a worker has become ready."""
        self._failures = 0

    def failed(self) -> None:
        """Record that a worker has failed to start."""
        self._failures += 1

    def next_start_after(self, now_seconds: float) -> float:
        """Record one more start and return the seconds that it has to wait."""
        delay = min(FIRST_RETRY_SECONDS * 2**self._failures, MAX_RETRY_SECONDS) if self._failures else 0.0
        if len(self._recent_starts) == self._recent_starts.maxlen:
            delay = max(delay, self._recent_starts[0] + 1.0 - now_seconds)
        self._recent_starts.append(now_seconds + delay)
        return delay
