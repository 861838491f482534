# SPDX-License-Identifier: Apache-2.0
"""Processes of `updraft-python` below a JVM, and sockets on which the JVM listens for Spark and for these processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

# Variable with the value that Spark sets for each Python that it starts. The JVM may have inherited another value.
_OF_PYTHON = ("PYTHONUNBUFFERED", "YES")


def launchers(java: psutil.Process) -> list[psutil.Process]:
    """Return the processes that a JVM has started in place of Python."""
    return [child for child in java.children() if _OF_PYTHON in _environment(child).items()]


def listeners(java: psutil.Process) -> int:
    """Return the number of TCP sockets on which a JVM listens."""
    return sum(socket.status == psutil.CONN_LISTEN for socket in java.net_connections("tcp"))


@dataclass(frozen=True)
class Launched:
    """Counts of processes below a JVM.

    Attributes:
        launchers: processes that Spark has started in place of Python.
        workers: idle processes that represent the workers of a daemon.
    """

    launchers: int
    workers: int

    @classmethod
    def by(cls, java: psutil.Process) -> Launched:
        """Return the counts of a JVM."""
        started = launchers(java)
        workers = [child for child in java.children() if child not in started and _name(child) == "cat"]
        return cls(len(started), len(workers))

    def most(self, other: Launched) -> Launched:
        """Return the larger of both values for each count."""
        return Launched(max(self.launchers, other.launchers), max(self.workers, other.workers))

    def excess(self, before: Launched, spare_workers: int) -> list[str]:
        """Return the counts that exceed those of `before`, where `spare_workers` more idle workers are allowed."""
        found = []
        if self.launchers > before.launchers:
            found.append(f"{self.launchers} launchers, not {before.launchers}")
        if self.workers > before.workers + spare_workers:
            found.append(f"{self.workers} processes of workers, not {before.workers}")
        return found


def _environment(process: psutil.Process) -> dict[str, str]:
    with suppress(psutil.Error):
        return process.environ()
    return {}


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""
