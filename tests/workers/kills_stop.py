# SPDX-License-Identifier: Apache-2.0
"""Place in a job's functions at which one process waits until it is killed, or every process kills itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.02
# If a test fails, the function stops waiting after this time.
_LONGEST_SECONDS = 120.0

Pass = Callable[[str, int], None]
"""Function that a job calls at each of its places, with the place's name and the step."""


@dataclass(frozen=True)
class Stop:
    """Place and step of a job.

    Attributes:
        place: name of the place; each job names its own places.
        step: number of the call at this place.
        directory: directory for notes between the function and the test, which functions on a pool can write to.
        is_deadly: whether each process that reaches the place kills itself. Otherwise the first such process waits.
    """

    place: str
    step: int
    directory: Path
    is_deadly: bool = False

    def passing(self) -> Pass:
        """Return the function to call at a job's places. The function can be pickled."""
        place, step, directory, is_deadly = self.place, self.step, str(self.directory), self.is_deadly

        def passes(here: str, at: int) -> None:
            if (here, at) == (place, step):
                if is_deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                _wait_once(Path(directory))

        return passes

    @property
    def is_reached(self) -> bool:
        """Whether a process waits at the place, or has waited there."""
        return self._reached.exists()

    @property
    def pid(self) -> int:
        """Process id of the process that waits."""
        return int(self._reached.read_text())

    def go(self) -> None:
        """Let the process continue if it is still alive."""
        (self.directory / "go").touch()

    @property
    def _reached(self) -> Path:
        return self.directory / "reached"


def _wait_once(directory: Path) -> None:
    try:
        # Let one process wait: several tasks may reach this place at once, and a retried task reaches it again.
        os.close(os.open(directory / "first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    written = directory / "pid"
    written.write_text(str(os.getpid()))
    written.rename(directory / "reached")
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not (directory / "go").exists() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
