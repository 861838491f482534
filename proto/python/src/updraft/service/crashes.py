# SPDX-License-Identifier: Apache-2.0
"""When a supervisor gives up on what it restarts: what dies again and again is better shown than hidden."""

import collections
import time

CRASHES = 5
WINDOW_SECONDS = 10.0


class Crashes:
    """The deaths of a supervisor's children."""

    def __init__(self) -> None:
        self._seconds: collections.deque[float] = collections.deque(maxlen=CRASHES)

    def are_too_many(self) -> bool:
        """Count one more."""
        now_seconds = time.monotonic()
        self._seconds.append(now_seconds)
        return len(self._seconds) == CRASHES and now_seconds - self._seconds[0] < WINDOW_SECONDS
