# SPDX-License-Identifier: Apache-2.0
"""Helper processes of the zygote, for work in directories that functions may fill with millions of files.

The zygote's loop never waits for a helper. A helper can open only the directories that it works in.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from updraft_server.linux.landlock import confine_files
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, name_process

KEPT = 3
"""Number under which a helper process keeps one descriptor."""

Watch = Callable[[int, Callable[[], None]], None]


class Helper:
    """Work that a forked process does on request. At most one such process runs at a time."""

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        watch: Watch,
        unwatch: Callable[[int], None],
        close_others: Callable[[], None],
        *,
        writable: Iterable[str],
    ) -> None:
        self._name = name
        self._work = work
        self._watch = watch
        self._unwatch = unwatch
        self._close_others = close_others
        self._writable = writable
        self._process: tuple[int, int] | None = None
        """Process id and pidfd."""
        self._is_more = False
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """Whether requested work is unfinished."""
        return self._process is not None

    @property
    def processes(self) -> frozenset[int]:
        """Process id of the helper, if it runs. The zygote must not kill this process as an orphan."""
        return frozenset() if self._process is None else frozenset(self._process[:1])

    def run(self) -> None:
        """Fork a process that does the work. If a process is already running, fork the next process when it ends."""
        if self._process is not None or self._is_stopped:
            self._is_more = True
            return
        self._is_more = False
        try:
            pid = os.fork()
            if pid == 0:
                be_helper(self._name, self._close_others, self._work, writable=self._writable)
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            # The next call tries again.
            sys.stderr.write(f"updraft-server: cannot start {self._name}: {error.strerror}\n")
            return
        self._process = pid, pidfd
        self._watch(pidfd, self._ended)

    def stop(self) -> None:
        """Kill the process, and start no other process. The zygote reaps the killed process as an orphan."""
        self._is_stopped = True
        if self._process is not None:
            pid, pidfd = self._process
            self._forget(pidfd)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ended(self) -> None:
        if self._process is None:
            return
        pid, pidfd = self._process
        self._forget(pidfd)
        os.waitpid(pid, 0)
        if self._is_more:
            self.run()

    def _forget(self, pidfd: int) -> None:
        self._process = None
        self._unwatch(pidfd)
        os.close(pidfd)


def be_helper(
    name: str,
    close_others: Callable[[], None],
    work: Callable[[], object],
    *,
    kept: int = -1,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
) -> NoReturn:
    """Turn this freshly forked process into a helper that calls `work` and then ends.

    The helper keeps only one of the zygote's descriptors: `kept`, under the number KEPT.
    """
    zygote = os.getppid()
    try:
        end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        name_process(name)
        # Keep no copy of a front's connection: the front must see the connection close when the zygote dies.
        close_others()
        if kept >= 0:
            os.dup2(kept, KEPT, inheritable=False)
        os.closerange(KEPT if kept < 0 else KEPT + 1, os.sysconf("SC_OPEN_MAX"))
        forbid_new_privileges()
        confine_files(readable=readable, writable=writable)
        if os.getppid() == zygote:
            work()
    finally:
        os._exit(0)
