# SPDX-License-Identifier: Apache-2.0
"""What a zygote leaves to its successor: which worker is which process. Workers outlive the zygote that forked them.

A file for each worker. A zygote that is killed between a fork and its record leaves a worker that no front has heard of
and that ends by itself: the other end of its socket died with the zygote.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from updraft_server.linux.process_trees import start_ticks

_MAX_RECORD_BYTES = 64
_UNFINISHED = "."


class Survivor(NamedTuple):
    """A worker of an earlier zygote that lives."""

    worker: str
    pid: int
    pidfd: int
    """The receiver closes it."""


class WorkerRecords:
    """The records of one zygote after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, worker: str, pid: int) -> None:
        """Note a child that has just been forked; raises OSError."""
        # Tools that tidy temporary directories may have removed it.
        self._directory.mkdir(mode=0o700, exist_ok=True)
        # It appears in one step: a zygote may die, and the supervisor look here, while another one forks.
        unfinished = self._directory / f"{_UNFINISHED}{worker}"
        unfinished.write_text(f"{pid} {start_ticks(pid)}")
        unfinished.rename(self._directory / worker)

    def forget(self, worker: str) -> None:
        """The worker has ended."""
        with contextlib.suppress(OSError):
            (self._directory / worker).unlink()

    def living(self) -> set[int]:
        """The process ids of noted workers that live: to be acted on by their parent only, which reaps them."""
        pids = set()
        # Workers may write to the directory: nothing that they put there or in its place fails who looks.
        with contextlib.suppress(OSError):
            for survivor in self.survivors():
                os.close(survivor.pidfd)
                pids.add(survivor.pid)
        return pids

    def go_on(self) -> None:
        """Continue workers of an earlier zygote that it has stopped: no front can say so before it has a successor."""
        for survivor in self.survivors():
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(survivor.pidfd, signal.SIGCONT)
            os.close(survivor.pidfd)

    def survivors(self) -> Iterator[Survivor]:
        """Workers of earlier zygotes that live; the records of those that do not are removed."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for record in sorted(self._directory.iterdir()):
            if record.name.startswith(_UNFINISHED):
                continue
            survivor = _survivor(record)
            if survivor is not None:
                yield survivor
            else:
                self.forget(record.name)


def _read(record: Path) -> bytes:
    """As much as a record can be, of whatever lies there: neither a pipe nor a huge file holds the reader up."""
    descriptor = os.open(record, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return os.read(descriptor, _MAX_RECORD_BYTES)
    finally:
        os.close(descriptor)


def _survivor(record: Path) -> Survivor | None:
    try:
        pid, started = map(int, _read(record).split())
        pidfd = os.pidfd_open(pid)
    except (ValueError, OverflowError, OSError):
        # Cut short by the death of its writer, of a worker that is gone, or no record at all.
        return None
    # In this order: a process that has the recorded start now is the one that the descriptor means.
    if start_ticks(pid) != started:
        os.close(pidfd)
        return None
    return Survivor(record.name, pid, pidfd)
