# SPDX-License-Identifier: Apache-2.0
"""By when a model process has to show again that it lives: a number in memory that the zygote shares with it.

The process writes, which costs neither a system call nor a turn of the zygote, and the zygote reads whenever it looks.
A timer of the process itself would go by the rules of its function, which may stop the process, or use that timer.
"""

import math
import mmap
import time

TURN_SECONDS = 30.0
"""How long a process may take for anything but a call of its function."""
_LATE_LOOKS = 3


class Watchdog:
    """Of one model process. The zygote makes it before it forks the process: each then has one over the same memory."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._cells = memoryview(self._memory).cast("d")
        self._late_looks = 0
        self._has_hung_up = False

    def hide_from_forks(self) -> None:
        """Let no process that is forked from now on have it: what runs there is not this function's."""
        self._memory.madvise(mmap.MADV_DONTFORK)

    def began_call(self, limit_seconds: float) -> None:
        """In the process: its function has that long for the call; zero is no limit."""
        self._expect_within(limit_seconds or math.inf, limit_seconds)

    def turned(self) -> None:
        """In the process: its loop goes on, and no call runs."""
        self._expect_within(TURN_SECONDS, 0.0)

    def hung_up(self) -> None:
        """In the zygote: the process says nothing any more, and has to end, as one that has run another program."""
        self._has_hung_up = True

    def broken(self) -> str:
        """In the zygote, at each look: how a process that is late was ended; empty for one that is not.

        One look that finds it late says nothing: the whole machine may have stood still, or the process may be ending.
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
        """Let go of the memory."""
        self._cells.release()
        self._memory.close()

    def _expect_within(self, seconds: float, limit_seconds: float) -> None:
        self._cells[1] = limit_seconds
        self._cells[0] = time.monotonic() + seconds
