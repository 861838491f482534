# SPDX-License-Identifier: Apache-2.0
"""How much lies in the scratch directory of each worker.

What is in them is hostile, and may be millions of files: a process of its own walks there, one directory after the
other, as long as there are any files, and tells the zygote, whose loop waits for nothing.
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

from updraft_server.linux.confined_files import confine_files
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, name_process
from updraft_server.linux.tree_sizes import TreeSize, tree_size

MOST_FILES = 4_000_000
"""In one scratch directory; nobody counts further."""

_Watch = Callable[[int, Callable[[], None]], None]
# At rest between two walks: for at least this time, and for so many times as long as the walk took.
_REST_SECONDS = 1.0
_REST_FACTOR = 9.0
_NICENESS = 10
_MAX_REPORT_BYTES = 4096


class ScratchMeter:
    """The last size of each scratch directory, and the process that measures them."""

    def __init__(
        self, directory: Path, watch: _Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._watch = watch
        self._unwatch = unwatch
        self._close_others = close_others
        self._sizes: dict[str, TreeSize] = {}
        self._process: tuple[int, int] | None = None
        """Its process id, and the descriptor at which it reports."""
        self._is_stopped = False

    @property
    def processes(self) -> frozenset[int]:
        """The process, if it runs: it is no stray."""
        return frozenset() if self._process is None else frozenset(self._process[:1])

    def size(self, worker: str) -> TreeSize:
        """The worker's directory when it was measured last; has it measured from now on if anything is in it."""
        if self._process is None and not self._is_stopped and _has_files(self._directory / worker):
            self._start()
        return self._sizes.get(worker, TreeSize())

    def forget(self, worker: str) -> None:
        """The worker has ended."""
        self._sizes.pop(worker, None)

    def stop(self) -> None:
        """End the process for good; whoever ends strays reaps it."""
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
                # The next look at a worker tries again.
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
                # One that has ended meanwhile is not remembered.
                if (self._directory / worker).exists():
                    self._sizes[worker] = TreeSize(*size)
            return
        # There was nothing to measure any more.
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
            # A front whose zygote dies has to see that.
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
    """Tell the sizes again and again until there are no files."""
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
        # A function has closed it to itself.
        return True
