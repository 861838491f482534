# SPDX-License-Identifier: Apache-2.0
"""Handling of Ctrl-C and SIGTERM, for a command that runs until one of them comes."""

import signal
import time
from types import FrameType


class Interruption:
    """Handler that raises KeyboardInterrupt in the main thread, and again in the next wait in case it was lost.

    Python drops an exception that is raised while a finalizer runs. A shell makes the background commands of a script
    ignore SIGINT; this handler takes it anyway, because a signal sent to this command is meant for it.
    """

    def __init__(self) -> None:
        """Handle both signals from now on."""
        self._has_come = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait; raises KeyboardInterrupt once a signal has come."""
        if self._has_come:
            raise KeyboardInterrupt
        time.sleep(seconds)
