# SPDX-License-Identifier: Apache-2.0
"""Heartbeat by which the supervisor notices a child that is stuck but not dead: stopped, or waiting forever.

A child's loop writes a byte to a pipe every second, and the supervisor checks the pipe every second. `child.py` joins
the two ends.
"""

import contextlib
import os

INTERVAL_SECONDS = 1.0
SILENT_TURNS = 5
"""Number of consecutive checks without a beat after which a child counts as stuck."""
LOADING_TURNS = 120
"""Number of checks without a first beat after which a child counts as stuck. The number is high because a child may
have much to load."""

_VARIABLE = "UPDRAFT_HEARTBEAT"
_PIPE_BYTES = 4096


class Heartbeat:
    """Child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def inherited(cls) -> "Heartbeat":
        """Return the end that this process inherited from its supervisor."""
        return cls(int(os.environ.pop(_VARIABLE)))

    def beat(self) -> None:
        """Show that the loop is running; never wait."""
        # The pipe is full if the supervisor has not read it for long, and has no reader if the supervisor is dead.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, b".")


class HeartbeatMonitor:
    """Supervisor's end of the pipe."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        for end in (self._reading, self.writing):
            os.set_blocking(end, False)
        self.has_beaten = False
        """Whether `is_stuck` has seen a beat."""
        self._silent_turns = 0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variable with the number of the descriptor `writing`, which the child must inherit."""
        return {_VARIABLE: str(self.writing)}

    def started(self) -> None:
        """Close our copy of the child's end, once the child has been started."""
        os.close(self.writing)

    def is_stuck(self) -> bool:
        """Check for beats; return whether SILENT_TURNS checks in a row (LOADING_TURNS at the start) saw none."""
        # Count checks instead of reading a clock, so that time during which this process itself was stopped is ignored.
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
        """Close the supervisor's end, once the child has ended."""
        os.close(self._reading)
