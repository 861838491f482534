# SPDX-License-Identifier: Apache-2.0
"""Child process that a supervisor starts, watches and ends."""

import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

from updraft.service.heartbeat import HeartbeatMonitor
from updraft.service.parent import parent_environment

CRASHES = 5
"""Number of deaths within WINDOW_SECONDS after which a supervisor stops restarting children, so that the failure is
visible."""
WINDOW_SECONDS = 10.0


class Child:
    """Process of a service, with the pipe of its heartbeat."""

    def __init__(self, module: str, environment: Mapping[str, str], inherited_descriptors: Iterable[int] = ()) -> None:
        """Start `python -P -m module`, which imports nothing from its working directory and dies with its parent."""
        self._heartbeat = HeartbeatMonitor()
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
            [sys.executable, "-P", "-m", module],
            env={**environment, **parent_environment(), **self._heartbeat.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=(*inherited_descriptors, self._heartbeat.writing),
        )
        self._heartbeat.started()
        self.pid = self._process.pid

    @property
    def has_started(self) -> bool:
        """Whether `is_stuck` has seen a heartbeat."""
        return self._heartbeat.has_beaten

    def is_stuck(self) -> bool:
        """Return whether heartbeats have been missing for too long; call this every `heartbeat.INTERVAL_SECONDS`."""
        return self._heartbeat.is_stuck()

    def kill(self) -> None:
        """Send SIGKILL; the code that reaps children sees the process end."""
        # Popen.kill() would first reap a child that has just ended, and the code that reaps children would never see it
        # end.
        if self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def reaped(self, code: int) -> None:
        """Record the exit code of the process, which the caller has reaped."""
        self._process.returncode = code
        self._heartbeat.close()

    def forget(self) -> None:
        """Stop tracking the process; the code that reaps all children reaps it."""
        self.reaped(-signal.SIGKILL)

    def end(self) -> int:
        """Kill and reap the process unless it has been reaped; return its exit code."""
        if self._process.returncode is None:
            self._process.kill()
            self.reaped(self._process.wait())
        return self._process.returncode


class Crashes:
    """Recent deaths of a supervisor's children."""

    def __init__(self) -> None:
        self._seconds: collections.deque[float] = collections.deque(maxlen=CRASHES)

    def are_too_many(self) -> bool:
        """Record a death; return whether the last CRASHES deaths happened within WINDOW_SECONDS."""
        now_seconds = time.monotonic()
        self._seconds.append(now_seconds)
        return len(self._seconds) == CRASHES and now_seconds - self._seconds[0] < WINDOW_SECONDS


def describe_exit(status: int) -> str:
    """Describe how a process ended; `status` is its exit code, or the negated number of the signal that killed it."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
