# SPDX-License-Identifier: Apache-2.0
"""How the supervisor notices a child that is stuck and not dead: stopped, or waiting for what never comes.

A child's loop writes a byte to a pipe every second; the supervisor looks at the pipe as often. `child.py` joins the
two ends.
"""

import contextlib
import os

INTERVAL_SECONDS = 1.0
SILENT_TURNS = 5
"""Looks in a row that find nothing until a child counts as stuck."""
LOADING_TURNS = 120
"""The same before the first beat: a child may have much to load."""

_VARIABLE = "UPDRAFT_HEARTBEAT"
_PIPE_BYTES = 4096


class Heartbeat:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def inherited(cls) -> "Heartbeat":
        """The end that this process was started with."""
        return cls(int(os.environ.pop(_VARIABLE)))

    def beat(self) -> None:
        """Show that the loop has turned; never waits."""
        # A pipe that is full has been seen by nobody yet; one without a reader is the death of the supervisor.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, b".")


class HeartbeatMonitor:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        for end in (self._reading, self.writing):
            os.set_blocking(end, False)
        self.has_beaten = False
        """Whether the child's loop has turned, as far as `is_stuck` has looked."""
        self._silent_turns = 0

    @property
    def environment(self) -> dict[str, str]:
        """What tells the child its end; `writing` has to be passed on too."""
        return {_VARIABLE: str(self.writing)}

    def started(self) -> None:
        """The child has its end: ours is closed."""
        os.close(self.writing)

    def is_stuck(self) -> bool:
        """Look once more."""
        # Turns are counted and no clock is read: time in which this process stood still itself does not count.
        try:
            beats = os.read(self._reading, _PIPE_BYTES)
        except BlockingIOError:
            beats = b""
        if beats:
            self.has_beaten, self._silent_turns = True, 0
        else:
            self._silent_turns += 1
        return self._silent_turns >= (SILENT_TURNS if self.has_beaten else LOADING_TURNS)

    def close(self) -> None:
        """The child has ended."""
        os.close(self._reading)
