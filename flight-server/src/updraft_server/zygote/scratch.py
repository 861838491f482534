# SPDX-License-Identifier: Apache-2.0
"""Scratch directories, one for each worker. Functions may write there; the zygote measures and removes the directories.

A directory's contents are hostile and may be millions of files, so the zygote's loop never walks a directory, and never
waits for a walk. One helper process measures the directories while there are any files in them, and reports to the
zygote. When a worker has ended, the zygote moves the worker's directory into a trash directory in one step, and another
helper process removes it.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NoReturn

from updraft_server.linux.hostile_trees import TreeSize, empty_directory, move_into, tree_size
from updraft_server.zygote.helpers import KEPT, Helper, Watch, be_helper

MOST_FILES = 4_000_000
"""Number of files in one scratch directory at which counting stops."""

_REMOVAL_SECONDS = 3600.0
# After each walk, the meter rests for at least _REST_SECONDS, and for at least _REST_FACTOR times as long as the walk
# took.
_REST_SECONDS = 1.0
_REST_FACTOR = 9.0
_NICENESS = 10
_MAX_REPORT_BYTES = 4096


class ScratchDirectories:
    """Scratch directories of a pool's workers, and the process that removes directories of ended workers."""

    def __init__(
        self, directory: Path, watch: Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._trash = directory / ".trash"
        self._meter = ScratchMeter(directory, watch, unwatch, close_others)
        trash = str(self._trash)
        self._remover = Helper(
            "updraft-remover",
            lambda: empty_directory(trash, within_seconds=_REMOVAL_SECONDS),
            watch,
            unwatch,
            close_others,
            writable=[trash],
        )

    @property
    def processes(self) -> frozenset[int]:
        """Process ids of the remover and the meter, if they run. The zygote must not kill either as an orphan."""
        return self._meter.processes | self._remover.processes

    def size(self, worker: str) -> TreeSize:
        """Return the size of a worker's directory at its last measurement."""
        return self._meter.size(worker)

    def room_bytes(self) -> int | None:
        """Return the free bytes of the volume that the directories share; None if they are unknown."""
        try:
            volume = os.statvfs(self._directory)
        except OSError:
            return None
        return volume.f_bavail * volume.f_frsize

    def make(self, worker: str) -> Path:
        """Make a new, empty directory; raises OSError."""
        path = self._directory / worker
        # Tools that tidy temporary directories may have removed the parent.
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
        return path

    def discard(self, worker: str) -> None:
        """Start the removal of the directory of a worker that has ended."""
        self._meter.forget(worker)
        path = self._directory / worker
        with contextlib.suppress(OSError):
            # Most directories are empty.
            path.rmdir()
            return
        try:
            self._trash.mkdir(mode=0o700, exist_ok=True)
            move_into(str(self._trash), str(self._directory), worker)
        except FileNotFoundError:
            return
        except OSError as error:
            sys.stderr.write(f"updraft-server: the scratch directory {path} cannot be removed: {error.strerror}\n")
            return
        self._remover.run()

    def discard_all_but(self, workers: Collection[str]) -> None:
        """Remove directories of all other workers, and directories that an earlier zygote did not finish removing."""
        with contextlib.suppress(OSError):
            for path in self._directory.iterdir():
                if path != self._trash and path.name not in workers:
                    self.discard(path.name)
            if any(self._trash.iterdir()):
                self._remover.run()

    def stop(self) -> None:
        """End the remover and the meter for good. The zygote reaps both, and the supervisor removes remaining files."""
        self._meter.stop()
        self._remover.stop()


class ScratchMeter:
    """Last known size of each scratch directory, and the process that measures the directories."""

    def __init__(
        self, directory: Path, watch: Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._watch = watch
        self._unwatch = unwatch
        self._close_others = close_others
        self._sizes: dict[str, TreeSize] = {}
        self._process: tuple[int, int] | None = None
        """Process id, and the descriptor on which the process reports."""
        self._is_stopped = False

    @property
    def processes(self) -> frozenset[int]:
        """Process id of the meter, if it runs. The zygote must not kill this process as an orphan."""
        return frozenset() if self._process is None else frozenset(self._process[:1])

    def size(self, worker: str) -> TreeSize:
        """Return the last known size of a worker's directory. If the directory contains files, start the meter."""
        if self._process is None and not self._is_stopped and _has_files(self._directory / worker):
            self._start()
        return self._sizes.get(worker, TreeSize())

    def forget(self, worker: str) -> None:
        """Drop the size of a worker that has ended."""
        self._sizes.pop(worker, None)

    def stop(self) -> None:
        """End the meter process for good. The zygote reaps it as an orphan."""
        self._is_stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process[0], signal.SIGKILL)
            self._forget_process()

    def _start(self) -> None:
        with contextlib.ExitStack() as opened:
            try:
                reports, told = map(opened.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                pid = os.fork()
            except OSError as error:
                # The next call of `size` tries again.
                sys.stderr.write(f"updraft-server: nothing measures scratch directories now: {error.strerror}\n")
                return
            if pid == 0:
                self._be_meter(told)
            opened.pop_all()
        told.close()
        self._process = pid, reports.detach()
        self._watch(self._process[1], self._receive)

    def _receive(self) -> None:
        if self._process is None:
            return
        pid, reports = self._process
        report = os.read(reports, _MAX_REPORT_BYTES)
        if report:
            sizes: Mapping[str, tuple[int, int]] = json.loads(report)
            for worker, size in sizes.items():
                # Ignore a worker that has ended in the meantime.
                if (self._directory / worker).exists():
                    self._sizes[worker] = TreeSize(*size)
            return
        # The process found nothing left to measure.
        self._sizes.clear()
        self._forget_process()
        os.waitpid(pid, 0)

    def _forget_process(self) -> None:
        if self._process is not None:
            _, reports = self._process
            self._process = None
            self._unwatch(reports)
            os.close(reports)

    def _be_meter(self, told: socket.socket) -> NoReturn:
        be_helper(
            "updraft-meter",
            self._close_others,
            lambda: _measure(self._directory, socket.socket(fileno=KEPT)),
            kept=told.detach(),
            readable=[str(self._directory)],
        )


def _measure(directory: Path, reports: socket.socket) -> None:
    """Report the sizes of all directories again and again, until the directories contain no files."""
    os.nice(_NICENESS)
    has_files = True
    while has_files:
        has_files = False
        began_seconds = time.monotonic()
        for path in list(directory.iterdir()):
            with contextlib.suppress(OSError):
                if not path.name.startswith("."):
                    size = tree_size(path, most_files=MOST_FILES)
                    has_files |= size.files > 0
                    reports.send(json.dumps({path.name: size}).encode())
        time.sleep(max(_REST_SECONDS, _REST_FACTOR * (time.monotonic() - began_seconds)))


def _has_files(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:
        # A function may have made its directory unreadable.
        return True
