# SPDX-License-Identifier: Apache-2.0
"""A process that a supervisor starts, watches and ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping

from updraft.service.heartbeat import HeartbeatMonitor
from updraft.service.parent import parent_environment


class Child:
    """A process of a service, and the pipe on which it shows that it is not stuck."""

    def __init__(self, module: str, environment: Mapping[str, str], inherited_descriptors: Iterable[int] = ()) -> None:
        """Start `python -m module`, which follows its parent; it does not import from where it runs."""
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
        """Whether its loop has turned, as far as `is_stuck` has looked."""
        return self._heartbeat.has_beaten

    def is_stuck(self) -> bool:
        """True when it has not shown itself for too long; to be asked once every `heartbeat.INTERVAL_SECONDS`."""
        return self._heartbeat.is_stuck()

    def kill(self) -> None:
        """Send SIGKILL; who reaps children hears of its end."""
        # Not Popen's, which first reaps a child that has just ended: then nobody hears of it.
        if self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def reaped(self, code: int) -> None:
        """Note that it has ended, to whom it may concern."""
        self._process.returncode = code
        self._heartbeat.close()

    def forget(self) -> None:
        """Let whoever reaps all children reap it as any other."""
        self.reaped(-signal.SIGKILL)

    def end(self) -> None:
        """Kill and reap it, if that has not happened."""
        if self._process.returncode is None:
            self._process.kill()
            self.reaped(self._process.wait())


def describe_exit(status: int) -> str:
    """How a process ended, in words; `status` is its exit code or, less than zero, the signal."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
