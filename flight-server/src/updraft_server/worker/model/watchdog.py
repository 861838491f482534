# SPDX-License-Identifier: Apache-2.0
"""Deadline by which a model process has to show that it is alive, in memory shared with the zygote.

The process writes the deadline, which needs no system call, and the zygote reads it at each check. A timer inside the
process would not suffice: the function could stop the process, or set the same timer for its own use.
"""

import math
import mmap
import time

TURN_SECONDS = 30.0
"""Longest time that a process may spend on anything but a call of its function."""
_LATE_LOOKS = 3


class Watchdog:
    """Watchdog of one model process. The zygote creates it before the fork, so that both processes share its memory."""

    def __init__(self) -> None:
        """Map the shared memory; raises OSError."""
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._cells = memoryview(self._memory).cast("d")
        self._late_looks = 0
        self._has_hung_up = False

    def hide_from_forks(self) -> None:
        """Hide the memory from processes that the zygote forks from now on. Called in the zygote after the fork."""
        self._memory.madvise(mmap.MADV_DONTFORK)

    def began_call(self, limit_seconds: float) -> None:
        """Start the time limit of a call; zero means no limit. Called in the process."""
        self._expect_within(limit_seconds or math.inf, limit_seconds)

    def turned(self) -> None:
        """Record that the process's loop runs and calls no function now. Called in the process."""
        self._expect_within(TURN_SECONDS, 0.0)

    def hung_up(self) -> None:
        """Record that the process has closed its connection, perhaps by running another program, and has to end.

        Called in the zygote.
        """
        self._has_hung_up = True

    def broken(self) -> str:
        """Return why the zygote has to end the process; empty if the process is not late. Called at each check.

        The process has to be late at several checks in a row. It can be late at a single check because the whole
        machine stood still, or because the process is about to exit.
        """
        deadline_seconds, limit_seconds = self._cells[0], self._cells[1]
        is_late = self._has_hung_up or 0 < deadline_seconds < time.monotonic()
        self._late_looks = self._late_looks + 1 if is_late else 0
        if self._late_looks < _LATE_LOOKS:
            return ""
        if self._has_hung_up:
            return "closed its connection to the pool, or ran another program in its place, and was ended"
        if limit_seconds:
            return (
                f"worked for more than {limit_seconds:g} seconds on one batch, and was ended (timeout_seconds of"
                " Batching)"
            )
        return f"made no progress for more than {TURN_SECONDS:g} seconds between two batches, and was ended"

    def close(self) -> None:
        """Release the memory."""
        self._cells.release()
        self._memory.close()

    def _expect_within(self, seconds: float, limit_seconds: float) -> None:
        self._cells[1] = limit_seconds
        self._cells[0] = time.monotonic() + seconds
