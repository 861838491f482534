# SPDX-License-Identifier: Apache-2.0
"""Crash-loop detection: a supervisor stops restarting a child that keeps dying, so that the failure is visible."""

import collections
import time

CRASHES = 5
WINDOW_SECONDS = 10.0


class Crashes:
    """Recent deaths of a supervisor's children."""

    def __init__(self) -> None:
        self._seconds: collections.deque[float] = collections.deque(maxlen=CRASHES)

    def are_too_many(self) -> bool:
        """Record a death; return whether the last CRASHES deaths happened within WINDOW_SECONDS."""
        now_seconds = time.monotonic()
        self._seconds.append(now_seconds)
        return len(self._seconds) == CRASHES and now_seconds - self._seconds[0] < WINDOW_SECONDS
