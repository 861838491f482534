# SPDX-License-Identifier: Apache-2.0
"""Scratch directory for each worker, in which its functions may write; it is removed with the worker.

Its contents are hostile. They are moved out of the way in one step and removed by a separate process, so that the
zygote's loop neither waits for the removal nor walks the directory.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

from updraft_server.linux.hostile_trees import TreeSize, empty_directory, move_into
from updraft_server.linux.landlock import confine_files
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, name_process
from updraft_server.zygote.scratch_meter import ScratchMeter

_Watch = Callable[[int, Callable[[], None]], None]
_REMOVAL_SECONDS = 3600.0


class ScratchDirectories:
    """Scratch directories of a pool's workers, and the process that removes those of ended workers."""

    def __init__(
        self, directory: Path, watch: _Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._trash = directory / ".trash"
        self._watch = watch
        self._unwatch = unwatch
        self._close_others = close_others
        self._meter = ScratchMeter(directory, watch, unwatch, close_others)
        self._remover: tuple[int, int] | None = None
        """Process id and pidfd of the remover."""
        self._is_more = False
        self._is_stopped = False

    @property
    def processes(self) -> frozenset[int]:
        """Process ids of the remover and the meter, if they run; neither is an orphan."""
        return self._meter.processes.union(() if self._remover is None else self._remover[:1])

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
        """Start to remove the directory of a worker that has ended."""
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
        self._remove()

    def discard_all_but(self, workers: Collection[str]) -> None:
        """Remove directories of workers that ended unseen, and those that an earlier zygote did not finish removing."""
        with contextlib.suppress(OSError):
            for path in self._directory.iterdir():
                if path != self._trash and path.name not in workers:
                    self.discard(path.name)
            if any(self._trash.iterdir()):
                self._remove()

    def stop(self) -> None:
        """End the remover and the meter for good; the zygote reaps both, and the supervisor removes what is left."""
        self._is_stopped = True
        self._meter.stop()
        if self._remover is not None:
            pid, pidfd = self._remover
            self._forget_remover(pidfd)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _remove(self) -> None:
        if self._remover is not None or self._is_stopped:
            self._is_more = True
            return
        self._is_more = False
        try:
            pid = os.fork()
            if pid == 0:
                self._be_remover()
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            # The next worker that ends triggers another attempt.
            sys.stderr.write(f"updraft-server: nothing removes scratch directories now: {error.strerror}\n")
            return
        self._remover = pid, pidfd
        self._watch(pidfd, self._removed)

    def _removed(self) -> None:
        if self._remover is None:
            return
        pid, pidfd = self._remover
        self._forget_remover(pidfd)
        os.waitpid(pid, 0)
        if self._is_more:
            self._remove()

    def _forget_remover(self, pidfd: int) -> None:
        self._remover = None
        self._unwatch(pidfd)
        os.close(pidfd)

    def _be_remover(self) -> NoReturn:
        zygote = os.getppid()
        try:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            name_process("updraft-remover")
            # Keep no copy of a front's connection: the front must see it close when the zygote dies.
            self._close_others()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            forbid_new_privileges()
            confine_files(readable=(), writable=(str(self._trash),))
            if os.getppid() == zygote:
                empty_directory(str(self._trash), within_seconds=_REMOVAL_SECONDS)
        finally:
            os._exit(0)
