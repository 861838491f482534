# SPDX-License-Identifier: Apache-2.0
"""Pool on this machine: `updraft-server serve`.

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

# Parent of every tmp_path of this user's tests.
NOTES = Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}"


class LocalPool(LocalService):
    """Pool and its processes."""

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
        """Prepare a pool whose functions can write files below `notes`, besides their scratch directories.

        `constants` are test values for constants in its processes (`tests.support.constants`).
        `server` is the program of the checkout whose code runs.
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
    def tcp_endpoint(self) -> str:
        """Value of spark.updraft.udf.endpoint over TCP alone, as if the pool were on another machine."""
        return f"grpc+tcp://{self.tcp_address}"

    @property
    def loopback_endpoint(self) -> str:
        """Value of spark.updraft.udf.endpoint over TCP, with large batches through shared memory."""
        return f"grpc://{self.tcp_address}"

    @property
    def unix_endpoint(self) -> str:
        """Value of spark.updraft.udf.endpoint over the Unix socket."""
        return f"grpc+unix://{self.unix_socket}"

    def load_again(self) -> None:
        """Make the pool reload its functions. It has to be ready, because SIGUSR2 ends a program that is starting."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def front(self) -> psutil.Process | None:
        """Return the process that holds the listeners; None while it is being replaced."""
        return next(iter(self._running("updraft_server.front.process")), None)

    def zygote(self) -> psutil.Process | None:
        """Return the process that forks workers; None while it is being replaced."""
        return next(iter(self._named("updraft-zygote")), None)

    def workers(self) -> list[psutil.Process]:
        """Return the workers, busy or idle."""
        return self._named("updraft-worker")

    def models(self) -> list[psutil.Process]:
        """Return the processes of batched functions."""
        return self._named("updraft-model")

    def _named(self, name: str) -> list[psutil.Process]:
        return [process for process in self.members() if _name(process) == name]

    def _running(self, module: str) -> list[psutil.Process]:
        return [process for process in self.members() if module in _command_line(process)]


def _command_line(process: psutil.Process) -> list[str]:
    """Return the command line; empty for a process that has ended or that may not be read."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _name(process: psutil.Process) -> str:
    """Return the name; empty for a process that has ended or is a zombie."""
    try:
        return process.name() if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""
