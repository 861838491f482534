# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM, for a command that runs until one of them comes."""

import signal
import time
from types import FrameType


class Interruption:
    """Raises KeyboardInterrupt wherever the main thread is, and in the next wait where that was lost.

    Python drops an exception that comes while a finalizer runs. A shell ignores SIGINT for what a script starts in the
    background: whoever sends it to this command means it.
    """

    def __init__(self) -> None:
        """Take both signals from now on."""
        self._has_come = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait; raises KeyboardInterrupt."""
        if self._has_come:
            raise KeyboardInterrupt
        time.sleep(seconds)
