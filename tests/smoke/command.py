# SPDX-License-Identifier: Apache-2.0
"""Command of `make`, its output, and the processes that it leaves running."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.support.paths import REPOSITORY
from tests.support.spark import SPARK_VERSION
from tests.support.waiting import until
from updraft_server.linux.process_control import adopt_orphans

# Reached only if something hangs.
_HANG_SECONDS = 60


class MakeCommand:
    """Context manager: `make <arguments>` in a process group of its own, as a terminal would run it."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments = [f"SPARK={'.'.join(map(str, SPARK_VERSION))}", *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes]
        self._before: set[psutil.Process] = set()

    @property
    def output(self) -> str:
        """Return everything printed so far."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end and return the exit status."""
        return self._process.wait(timeout_seconds)

    def wait_for(self, text: str) -> None:
        """Wait until `text` is printed; raise AssertionError if the command ends before that."""

        def printed_or_ended() -> bool:
            return text in self.output or self._process.poll() is not None

        until(f"{text} is printed", printed_or_ended, timeout_seconds=_HANG_SECONDS)
        assert text in self.output, self.output

    def interrupt(self) -> int:
        """Send SIGINT to the whole group, as Ctrl-C does, and return the exit status."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.wait(_HANG_SECONDS)

    def left_running(self) -> list[psutil.Process]:
        """Return all descendants that still run; a JVM ends by itself a moment after its driver."""
        started = [process for process in self._descendants() - self._before if _runs(process)]
        return psutil.wait_procs(started, timeout=_HANG_SECONDS)[1]

    def _descendants(self) -> set[psutil.Process]:
        return set(psutil.Process().children(recursive=True))

    def __enter__(self) -> Self:
        # Otherwise orphans of the command would become children of init, where left_running() does not find them.
        adopt_orphans()
        self._before = self._descendants()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["make", "--no-print-directory", *self._arguments],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.left_running():
            process.kill()
        self._process.wait()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
