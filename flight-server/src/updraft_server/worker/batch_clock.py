# SPDX-License-Identifier: Apache-2.0
"""Ends this process when a function works for too long on one batch, or for too long without giving or taking one.

The kernel's timer is what does it, with the default action of SIGALRM: it needs no thread, and also ends a function
that never comes back from C. The front (`updraft_server.front.relay`) tells the client what the death means.
"""

import contextlib
import math
import signal
from collections.abc import Iterator

# Longer than any worker lives, and shorter than the longest time that Python hands to the kernel.
_FOREVER_SECONDS = 1e9


class BatchClock:
    """Counts while the function has the processor's turn: not while this worker waits for the client."""

    def __init__(self) -> None:
        self._batch_seconds = self._idle_seconds = self._left_seconds = math.inf
        self._armed_seconds = 0.0

    def limit(self, batch_seconds: float, idle_seconds: float = 0.0) -> None:
        """Allow so much for each batch, and between giving or taking batches, from now on; 0 is no limit."""
        self._batch_seconds = batch_seconds or math.inf
        self._idle_seconds = idle_seconds or math.inf

    def start(self) -> None:
        """The function has got its next batch."""
        self._left_seconds = self._batch_seconds
        self.resume()

    def pause(self) -> None:
        """The function waits for the client."""
        if self._armed_seconds:
            rest_seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            self._left_seconds -= self._armed_seconds - rest_seconds
            self._armed_seconds = 0.0

    def resume(self) -> None:
        """The function has given a batch and goes on with the one that it has."""
        self._arm(min(self._left_seconds, self._idle_seconds))

    def allow_for(self, batches: int) -> None:
        """With the batch that it has, the function may now work on so many that it took before and only kept."""
        if not batches:
            return
        self.pause()
        self._left_seconds += batches * self._batch_seconds
        self._arm(min(self._left_seconds, (1 + batches) * self._idle_seconds))

    def _arm(self, seconds: float) -> None:
        if seconds < _FOREVER_SECONDS:
            # A timer of zero would be none.
            self._armed_seconds = max(seconds, 1e-6)
            signal.setitimer(signal.ITIMER_REAL, self._armed_seconds)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The function waits for something that is not its own work."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def stop(self) -> None:
        """The function has ended."""
        self.pause()
        self._batch_seconds = self._idle_seconds = self._left_seconds = math.inf
