# SPDX-License-Identifier: Apache-2.0
"""Pool to which a fault happens, and the conditions that must hold afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc
import psutil

from tests.faults.conftest import WORKERS
from tests.faults.table.call import Call
from tests.faults.table.fault import Fault
from tests.faults.table.functions import well
from tests.faults.table.state import Held, held_by
from tests.faults.victims import is_whole, wait_until_gone
from tests.support.waiting import until

_GOOD_EXCHANGES = 3
_ARCHIVE = bytes(10_240)
"""Tar archive without members."""
_GOOD = grpc.StatusCode.OK


class Scene:
    """Pool that has served three good exchanges; a context manager. Functions may write to the directory `notes`."""

    def __init__(self, notes: Path, fault: Fault) -> None:
        self.notes = notes
        self.place: Any = None
        """Environment that the fault's `place` made."""
        self._make_place = fault.place
        self._cleared = contextlib.ExitStack()
        # Unlike pytest's, short enough for the path of a Unix socket.
        self.runtime = Path(tempfile.mkdtemp(prefix="updraft-faults-"))
        arguments = ["--fresh-workers", "0", "--runtime-directory", str(self.runtime / "pool"), *fault.options]
        self.pool = fault.make(workers=WORKERS, notes=notes, arguments=arguments, constants=fault.constants)
        self.victims: list[psutil.Process] = []
        """Processes that must have ended before the pool counts as whole."""
        self._before: Held | None = None
        self._family: list[psutil.Process] = []
        self._addresses: list[str] = []

    def __enter__(self) -> Self:
        self.place = self._cleared.enter_context(self._make_place(self.runtime))
        try:
            if log := getattr(self.place, "log", None):
                self.pool.log_file = log
            self.pool.start()
            self._become_familiar()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.pool.members():
            with contextlib.suppress(psutil.Error):
                process.resume()
        self.pool.stop()
        self._cleared.close()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def call(self, function: Callable[[Any], Any], **options: Any) -> Call:
        """Open an exchange with the pool."""
        return Call(self.pool.tcp_address, function, **options)

    def go(self) -> None:
        """Let waiting functions continue."""
        (self.notes / "go").touch()

    def worker(self, directory: Path | None = None) -> psutil.Process:
        """Return the worker whose function waits at the point that the test has chosen."""
        note = (directory or self.notes) / "reached"
        until("the function is where it waits", note.exists)
        return psutil.Process(int(note.read_text()))

    def serve_good_exchanges(self) -> None:
        """Run three exchanges and check their answers."""
        for _ in range(_GOOD_EXCHANGES):
            call = self.call(well)
            call.send()
            assert call.finish() == _GOOD, call.reply.details
            assert call.answers() == ["well"]

    def wait_until_whole(self) -> None:
        """Wait until the killed processes are gone and the pool has all of its processes."""
        until("what was killed has ended", lambda: not any(map(_lives, self.victims)))
        until("the pool is whole", lambda: is_whole(self.pool, WORKERS))

    def start_again(self) -> None:
        """Start the pool as its platform would, when every process has ended."""
        wait_until_gone(self._family, self._addresses)
        self.pool.start_again()
        until("the pool is whole", lambda: is_whole(self.pool, WORKERS))

    def is_as_before(self) -> None:
        """Check that the pool has released everything that the fault used; the error lists what remains."""
        excess: list[str] = ["never asked"]

        def nothing_more() -> bool:
            assert self._before is not None
            try:
                excess[:] = held_by(self.pool, self.runtime).excess(self._before)
            except (psutil.Error, grpc.RpcError, urllib.error.URLError, KeyError, FileNotFoundError) as error:
                excess[:] = [repr(error)]
            return not excess

        try:
            until("everything is given back", nothing_more, timeout_seconds=30)
        except TimeoutError:
            raise AssertionError("; ".join(excess)) from None

    def _become_familiar(self) -> None:
        until("the pool is whole", lambda: is_whole(self.pool, WORKERS))
        # A worker that opens or imports something for the first time does not leak. So let each worker run an exchange
        # with an artifact before the first measurement.
        open_calls = [self.call(well, artifacts={"familiar": _ARCHIVE}) for _ in range(WORKERS)]
        for call in open_calls:
            call.wait_for("admitted")
        assert [call.finish() for call in open_calls] == [_GOOD] * WORKERS
        self.serve_good_exchanges()

        looks: list[Held] = []

        def at_rest() -> Held | None:
            held = held_by(self.pool, self.runtime)
            looks.append(held)
            resting = dict.fromkeys(held.counters, 0) | {"idle": WORKERS}
            # A newly forked helper of the zygote still has the zygote's name, so it raises the number of processes for
            # a moment.
            settled = len(looks) > 1 and looks[-2].processes == held.processes
            return held if settled and held.counters == resting and not held.artifacts.on_their_way else None

        self._before = until("the pool is at rest", at_rest)
        self._family = self.pool.members()
        self._addresses = [self.pool.tcp_address, self.pool.admin_address, self.pool.metrics_address]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
