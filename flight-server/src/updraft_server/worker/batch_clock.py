# SPDX-License-Identifier: Apache-2.0
"""Ends this process when a function works for too long on one batch.

The kernel's timer is what does it, with the default action of SIGALRM: it needs no thread, and also ends a function
that never comes back from C. The front (`updraft_server.batch_timeout`) tells the client what the death means.
"""

import signal


class BatchClock:
    """Counts while the function has the processor's turn: not while this worker waits for the client."""

    def __init__(self) -> None:
        self._limit_seconds = 0.0
        self._left_seconds = 0.0

    def limit(self, seconds: float) -> None:
        """Allow so much for each batch from now on; 0 is no limit."""
        self._limit_seconds = seconds

    def start(self) -> None:
        """The function has got its next batch."""
        self._left_seconds = self._limit_seconds
        self.resume()

    def pause(self) -> None:
        """The function waits for the client."""
        if self._limit_seconds:
            self._left_seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)

    def resume(self) -> None:
        """The function goes on with the batch that it has."""
        if self._left_seconds:
            signal.setitimer(signal.ITIMER_REAL, self._left_seconds)

    def stop(self) -> None:
        """The function has ended."""
        self.pause()
        self._limit_seconds = self._left_seconds = 0.0
