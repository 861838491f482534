# SPDX-License-Identifier: Apache-2.0
"""A pool on this machine: `updraft-server serve`.

`process.py` (psutil) counts and kills its members; `spark.py` points Spark at it.
"""

from __future__ import annotations

import getpass
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.support.constants import NOTHING
from tests.support.paths import SERVER
from tests.support.service import LocalService

# Beneath it lies every tmp_path of this user's tests.
NOTES = Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}"


class LocalPool(LocalService):
    """A pool and the processes that it is made of."""

    def __init__(
        self,
        *,
        workers: int = 2,
        session_functions: str = "unsigned",
        notes: Path | None = None,
        arguments: Sequence[str] = (),
        constants: Mapping[str, object] = NOTHING,
        server: Path = SERVER,
    ):
        """Its functions can write files beneath `notes`, beside their scratch directories.

        `constants` have a test's values in its processes (`tests.support.constants`).
        `server` is the program of the checkout whose code it runs.
        """
        super().__init__(
            "pool",
            server,
            [
                *("--workers", str(workers)),
                *(["--writable-paths", str(notes)] if notes else []),
                *("--session-functions", session_functions),
                *arguments,
            ],
            constants,
        )
        self.unix_socket = self.directory / "pool.sock"
        self._command += ["--listen-unix", str(self.unix_socket)]

    @property
    def unix_endpoint(self) -> str:
        """Value of spark.updraft.udf.endpoint over the Unix socket."""
        return f"grpc+unix://{self.unix_socket}"

    def load_again(self) -> None:
        """Have it load its functions again; it has to be ready, since a program that starts ends with SIGUSR2."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def front(self) -> psutil.Process | None:
        """The process that holds the listeners; None while it is being replaced."""
        return next(iter(self._running("updraft_server.front.process")), None)

    def zygote(self) -> psutil.Process | None:
        """The process that forks workers; None while it is being replaced."""
        return next(iter(self._named("updraft-zygote")), None)

    def workers(self) -> list[psutil.Process]:
        """The workers, busy or idle."""
        return self._named("updraft-worker")

    def models(self) -> list[psutil.Process]:
        """The processes of batched functions."""
        return self._named("updraft-model")

    def _named(self, name: str) -> list[psutil.Process]:
        return [process for process in self.members() if _name(process) == name]

    def _running(self, module: str) -> list[psutil.Process]:
        return [process for process in self.members() if module in _command_line(process)]


def _command_line(process: psutil.Process) -> list[str]:
    """Empty for a process that is gone or a zombie."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _name(process: psutil.Process) -> str:
    """Empty for a process that is gone or a zombie."""
    try:
        return process.name() if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""
