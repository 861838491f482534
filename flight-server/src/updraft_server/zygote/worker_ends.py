# SPDX-License-Identifier: Apache-2.0
"""Ends of workers that their fronts have not heard of: what the workers left behind ends first.

A front lends the place of a worker that has ended to somebody else, who must not meet processes of the one before.
"""

import math
import socket
import time
from typing import NamedTuple

# Killed processes end in milliseconds. Those that fork without end, or wait for a disk, keep nobody waiting for longer.
_MOST_SECONDS = 0.5


class WorkerEnd(NamedTuple):
    """What a front is to hear."""

    front: socket.socket | None
    """None where nobody is to hear of it."""
    worker: str
    status: int | None
    """How it ended, as an exit code, or less than zero the signal; None where that cannot be known."""
    tell_seconds: float
    """When the front hears of it even if something is left, on the clock of the machine."""


class WorkerEnds:
    """Those of a zygote, in their order."""

    def __init__(self) -> None:
        self._untold: list[WorkerEnd] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._untold)

    @property
    def wait_seconds(self) -> float:
        """How long the zygote's loop may wait for events before it looks again."""
        return max(0.0, self._untold[0].tell_seconds - time.monotonic()) if self._untold else math.inf

    def add(self, front: socket.socket | None, worker: str, status: int | None) -> None:
        """A worker has ended, of this front, if of any."""
        self._untold.append(WorkerEnd(front, worker, status, time.monotonic() + _MOST_SECONDS))

    def take(self, *, is_anything_left: bool) -> list[WorkerEnd]:
        """Those to tell now, where processes that workers have left behind still live, or do not."""
        now = time.monotonic()
        count = sum(end.tell_seconds <= now for end in self._untold) if is_anything_left else len(self._untold)
        told, self._untold = self._untold[:count], self._untold[count:]
        return told
