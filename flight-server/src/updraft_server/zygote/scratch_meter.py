# SPDX-License-Identifier: Apache-2.0
"""Meter of the workers' scratch directories.

The contents are hostile and may be millions of files. A separate process walks one directory after the other as long as
there are any files, and reports to the zygote, whose loop never waits for it.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from updraft_server.linux.hostile_trees import TreeSize, tree_size
from updraft_server.linux.landlock import confine_files
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, name_process

MOST_FILES = 4_000_000
"""Counting stops at this many files in one scratch directory."""

_Watch = Callable[[int, Callable[[], None]], None]
# The meter rests after each walk for _REST_FACTOR times as long as the walk took, and for at least _REST_SECONDS.
_REST_SECONDS = 1.0
_REST_FACTOR = 9.0
_NICENESS = 10
_MAX_REPORT_BYTES = 4096


class ScratchMeter:
    """Last size of each scratch directory, and the process that measures them."""

    def __init__(
        self, directory: Path, watch: _Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
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
        """Process id of the meter, if it runs; it is not an orphan."""
        return frozenset() if self._process is None else frozenset(self._process[:1])

    def size(self, worker: str) -> TreeSize:
        """Return the last size of a worker's directory; if there are files in it, have it measured from now on."""
        if self._process is None and not self._is_stopped and _has_files(self._directory / worker):
            self._start()
        return self._sizes.get(worker, TreeSize())

    def forget(self, worker: str) -> None:
        """Drop the size of a worker that has ended."""
        self._sizes.pop(worker, None)

    def stop(self) -> None:
        """End the process for good; the zygote reaps it as an orphan."""
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
                # Ignore a worker that has ended meanwhile.
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
        zygote = os.getppid()
        try:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            name_process("updraft-meter")
            # Keep no copy of a front's connection: the front must see it close when the zygote dies.
            self._close_others()
            reports = os.dup2(told.detach(), 3, inheritable=False)
            os.closerange(reports + 1, os.sysconf("SC_OPEN_MAX"))
            os.nice(_NICENESS)
            forbid_new_privileges()
            confine_files(readable=(str(self._directory),), writable=())
            if os.getppid() == zygote:
                _measure(self._directory, socket.socket(fileno=reports))
        finally:
            os._exit(0)


def _measure(directory: Path, reports: socket.socket) -> None:
    """Report the sizes again and again until there are no files."""
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
        # A function has made its directory unreadable.
        return True
