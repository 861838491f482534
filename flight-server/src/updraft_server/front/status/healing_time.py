# SPDX-License-Identifier: Apache-2.0
"""Time for which a pool lacks workers, from the loss of the first until all are back, taken from its changes."""

import time
from collections.abc import Callable


class HealingTime:
    """Observer of how many seconds a pool, once complete, takes to be complete again after it has lost workers."""

    def __init__(
        self, wanted: int, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wanted = wanted
        self._observe = observe
        self._clock = clock
        self._was_whole = False
        self._lost_at: float | None = None

    def workers_are(self, warm: int) -> None:
        """Report how many workers are warm now, idle or busy."""
        if warm >= self._wanted:
            if self._lost_at is not None:
                self._observe(self._clock() - self._lost_at)
            self._was_whole, self._lost_at = True, None
        elif self._was_whole and self._lost_at is None:
            self._lost_at = self._clock()
