# SPDX-License-Identifier: Apache-2.0
"""Records of worker processes that a zygote leaves to its successor, because workers outlive their zygote.

Each worker has a file. If a zygote is killed after a fork and before it records the worker, no front knows that worker.
The worker then ends by itself, because the other end of its socket closed when the zygote died.
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
    """Living worker of an earlier zygote."""

    worker: str
    pid: int
    pidfd: int
    """Descriptor of the process, which the receiver closes."""


class WorkerRecords:
    """Records that successive zygotes keep of their workers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, worker: str, pid: int) -> None:
        """Record a child that has just been forked; raises OSError."""
        # Tools that tidy temporary directories may have removed the directory.
        self._directory.mkdir(mode=0o700, exist_ok=True)
        # Make the record appear in one step, because this zygote may die, or another process may read the directory, at
        # any moment.
        unfinished = self._directory / f"{_UNFINISHED}{worker}"
        unfinished.write_text(f"{pid} {start_ticks(pid)}")
        unfinished.rename(self._directory / worker)

    def forget(self, worker: str) -> None:
        """Remove the record of a worker that has ended."""
        with contextlib.suppress(OSError):
            (self._directory / worker).unlink()

    def living(self) -> set[int]:
        """Return the process ids of living workers. Only the workers' parent, which reaps them, may act on the ids."""
        pids = set()
        # Even if a worker has written to the directory or replaced it, the reader must not fail.
        with contextlib.suppress(OSError):
            for survivor in self.survivors():
                os.close(survivor.pidfd)
                pids.add(survivor.pid)
        return pids

    def go_on(self) -> None:
        """Continue workers that an earlier zygote has stopped. No front can continue them until a new zygote serves."""
        for survivor in self.survivors():
            # The worker may have ended in the meantime.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(survivor.pidfd, signal.SIGCONT)
            os.close(survivor.pidfd)

    def survivors(self) -> Iterator[Survivor]:
        """Yield the living workers of earlier zygotes, and remove the records of workers that have ended."""
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
    """Read at most the size of a record. A pipe or a huge file in place of the record does not delay this process."""
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
        # The writer died before the record was complete, the worker has ended, or the file is not a record.
        return None
    # Compare start times only after opening the pidfd. If they are equal, the pidfd refers to the recorded process.
    if start_ticks(pid) != started:
        os.close(pidfd)
        return None
    return Survivor(record.name, pid, pidfd)
