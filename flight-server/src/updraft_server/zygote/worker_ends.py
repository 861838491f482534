# SPDX-License-Identifier: Apache-2.0
"""Worker exits not yet reported to the front: processes that the worker left behind have to end first.

A front gives the place of an ended worker to another exchange, which must not meet processes of the previous one.
"""

import math
import socket
import time
from typing import NamedTuple

# Killed processes normally end within milliseconds. Processes that keep forking, or that wait for a disk, delay the
# report by at most this time.
_MOST_SECONDS = 0.5


class WorkerEnd(NamedTuple):
    """Worker exit to report."""

    front: socket.socket | None
    """Front to tell; None if there is none."""
    worker: str
    status: int | None
    """Exit code, or minus the signal that ended the worker; None if unknown."""
    tell_seconds: float
    """Monotonic time at which the front is told even if processes are left."""


class WorkerEnds:
    """Unreported worker exits of a zygote, in order."""

    def __init__(self) -> None:
        self._untold: list[WorkerEnd] = []

    def __bool__(self) -> bool:
        """Return whether any exit is unreported."""
        return bool(self._untold)

    @property
    def wait_seconds(self) -> float:
        """Time that the zygote's loop may wait for events before it checks again."""
        return max(0.0, self._untold[0].tell_seconds - time.monotonic()) if self._untold else math.inf

    def add(self, front: socket.socket | None, worker: str, status: int | None) -> None:
        """Add the exit of a worker; `front` is None if the worker had no front."""
        self._untold.append(WorkerEnd(front, worker, status, time.monotonic() + _MOST_SECONDS))

    def take(self, *, is_anything_left: bool) -> list[WorkerEnd]:
        """Return and drop the exits to report now.

        While processes are left behind (`is_anything_left`), return only the exits that can wait no longer.
        """
        now = time.monotonic()
        count = sum(end.tell_seconds <= now for end in self._untold) if is_anything_left else len(self._untold)
        told, self._untold = self._untold[:count], self._untold[count:]
        return told
