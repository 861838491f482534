# SPDX-License-Identifier: Apache-2.0
"""Connection from PID 1 of the workers' side to the front of another supervisor, and to that front's successors."""

import enum
import fcntl
import os
import socket
import time
from pathlib import Path

from updraft_server.ipc.control import Greeting, connected, greeting, new_secret

# Interval between complaints, and the time that a freshly started front may take to accept a connection.
_COMPLAINT_SECONDS = 10.0
_MOMENT_SECONDS = 2.0


class News(enum.Enum):
    """Change of the front since the last check."""

    NONE = "nothing"
    TAKEN = "it has taken this side's connection"
    LOST = "it has gone away"
    MISSING = "it cannot be reached, which is worth a line again"


class FrontCall:
    """Connection to the current front. The supervisor checks the connection regularly, and on every SIGIO."""

    def __init__(self, path: Path) -> None:
        """Prepare to connect to the fronts that listen at `path`."""
        self.control: socket.socket | None = None
        """Connection to the front; None until the front has accepted it."""
        self._path = path
        self._secret = new_secret()
        self._calling: socket.socket | None = None
        self._next_complaint_seconds = 0.0

    def look(self) -> News:
        """Check whether the front has closed the connection; never waits."""
        if self.control is None or greeting(self.control) is not Greeting.GONE:
            return News.NONE
        self.control.close()
        self.control = None
        return News.LOST

    def call(self) -> News:
        """Start an attempt to connect to a front, or check on the current one; never waits."""
        if self._calling is None:
            self._call()
        said = greeting(self._calling) if self._calling is not None else Greeting.GONE
        if said is Greeting.TAKEN:
            self.control, self._calling = self._calling, None
            return News.TAKEN
        if said is Greeting.GONE and self._calling is not None:
            self._calling.close()
            self._calling = None
        if time.monotonic() < self._next_complaint_seconds:
            return News.NONE
        self._next_complaint_seconds = time.monotonic() + _COMPLAINT_SECONDS
        return News.MISSING

    def _call(self) -> None:
        self._calling = connected(self._path, self._secret)
        if self._calling is None:
            return
        self._next_complaint_seconds = max(self._next_complaint_seconds, time.monotonic() + _MOMENT_SECONDS)
        # The kernel sends SIGIO for events of this connection. If the front closes the connection, the supervisor kills
        # user code at once, before that code can connect to the next front.
        fcntl.fcntl(self._calling, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._calling, fcntl.F_SETFL, fcntl.fcntl(self._calling, fcntl.F_GETFL) | os.O_ASYNC)
