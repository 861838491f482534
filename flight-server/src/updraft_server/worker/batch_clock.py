# SPDX-License-Identifier: Apache-2.0
"""Time limits of a function: one for each batch, and one for periods in which the function takes and returns no batch.

When a limit is exceeded, the kernel's timer ends the process through the default action of SIGALRM. The timer needs no
thread, and works even if a function never returns from C code. The front (`updraft_server.front.relay`) tells the
client why the worker died.
"""

import contextlib
import math
import signal
from collections.abc import Iterator

# Longer than the life of any worker, and within the range of times that Python can pass to the kernel.
_FOREVER_SECONDS = 1e9


class BatchClock:
    """Timer of the function's own work; it stops while the worker waits for the client."""

    def __init__(self) -> None:
        self._batch_seconds = self._idle_seconds = self._left_seconds = math.inf
        self._armed_seconds = 0.0

    def limit(self, batch_seconds: float, idle_seconds: float = 0.0) -> None:
        """Set the limits for each batch, and for the time in which no batch is taken or returned; 0 means no limit."""
        self._batch_seconds = batch_seconds or math.inf
        self._idle_seconds = idle_seconds or math.inf

    def start(self) -> None:
        """Start timing the next batch, which the function has just received."""
        self._left_seconds = self._batch_seconds
        self.resume()

    def pause(self) -> None:
        """Stop the timer while the function waits for the client."""
        if self._armed_seconds:
            rest_seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            self._left_seconds -= self._armed_seconds - rest_seconds
            self._armed_seconds = 0.0

    def resume(self) -> None:
        """Continue timing the current batch after the function has returned a result."""
        self._arm(min(self._left_seconds, self._idle_seconds))

    def allow_for(self, batches: int) -> None:
        """Add the limits of `batches` earlier batches, which the function has stored but not processed yet."""
        if not batches:
            return
        self.pause()
        self._left_seconds += batches * self._batch_seconds
        self._arm(min(self._left_seconds, (1 + batches) * self._idle_seconds))

    def _arm(self, seconds: float) -> None:
        if seconds < _FOREVER_SECONDS:
            # setitimer with zero would disarm the timer.
            self._armed_seconds = max(seconds, 1e-6)
            signal.setitimer(signal.ITIMER_REAL, self._armed_seconds)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the timer during the block, in which the function waits and does not work."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def stop(self) -> None:
        """Stop the timer and remove the limits."""
        self.pause()
        self._batch_seconds = self._idle_seconds = self._left_seconds = math.inf
