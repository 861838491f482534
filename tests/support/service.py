# SPDX-License-Identifier: Apache-2.0
"""Updraft service on this machine, as a subprocess that always ends with its owner.

`pool.py` and `writer.py` define the two services.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.support.constants import NOTHING, with_constants
from tests.support.waiting import until
from tests.support.web import fetched

# Prefix of a command: Linux sends it SIGTERM when the thread that started it ends, for whatever reason.
WITH_ITS_OWNER = ("setpriv", "--pdeathsig", "TERM", "--") if shutil.which("setpriv") else ()
_START_TIMEOUT_SECONDS = 120
_STOP_TIMEOUT_SECONDS = 60
_LOG_TAIL_CHARACTERS = 20_000


class LocalService:
    """Context manager around one `serve`; after `start()` its addresses and pids are attributes."""

    def __init__(self, noun: str, program: Path, arguments: Sequence[str], constants: Mapping[str, object] = NOTHING):
        self._noun = noun
        self._what = f"the {noun} is ready"
        self.directory = Path(tempfile.mkdtemp(prefix=f"updraft-{noun}-"))
        self._ready_file = self.directory / "ready.json"
        self.log_file = self.directory / f"{noun}.log"
        self._command = [
            *WITH_ITS_OWNER,
            str(program),
            "serve",
            *("--listen", "127.0.0.1:0"),
            *("--admin-listen", "127.0.0.1:0"),
            *("--metrics-listen", "127.0.0.1:0"),
            *("--ready-file", str(self._ready_file)),
            *arguments,
        ]
        self._constants = constants
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._ready: dict[str, Any] = {}

    def start(self) -> Self:
        """Start the service and wait until it is ready; raise RuntimeError with its log if it ends before that."""
        self._log = self.log_file.open("wb")
        # Start it in a new session: Ctrl-C in a terminal then signals only the owner, which shuts the service down in
        # order.
        self._process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=with_constants(self.directory, self._constants),
            start_new_session=True,
        )
        try:
            self._ready = until(self._what, self._ready_or_dead, timeout_seconds=_START_TIMEOUT_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def start_again(self) -> Self:
        """Wait until the service has ended, and restart it with the same settings and a fresh log."""
        assert self._process is not None
        self._process.wait(timeout=_STOP_TIMEOUT_SECONDS)
        if self._log is not None:
            self._log.close()
        # A failed start has removed the directory. A service ended by SIGKILL has left its directory behind.
        self.directory.mkdir(exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        return self.start()

    def stop(self) -> int:
        """Drain by SIGTERM, kill the remaining processes, remove the files; return the exit status."""
        status = self.terminate()
        if self._log is not None:
            self._log.close()
            self._log = None
        shutil.rmtree(self.directory, ignore_errors=True)
        return status

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit status; the log stays."""
        if self._process is None:
            return 0
        family = self.members() if self._process.poll() is None else []
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for member in family:
            if member.pid != self._process.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
        return self._process.returncode

    @property
    def is_ready(self) -> bool:
        """Whether the service has become ready since its last start."""
        return self._ready_file.exists()

    def request_drain(self) -> None:
        """Send SIGTERM and return at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self, *, timeout_seconds: float) -> int:
        """Wait for the service's own end and return its exit status."""
        assert self._process is not None
        return self._process.wait(timeout=timeout_seconds)

    @property
    def pid(self) -> int:
        """Pid of the process that was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def tcp_address(self) -> str:
        """host:port of the Flight listener."""
        return str(self._ready["listen"])

    @property
    def ready(self) -> dict[str, Any]:
        """Current content of the ready file."""
        return dict(json.loads(self._ready_file.read_text()))

    @property
    def admin_address(self) -> str:
        """host:port of the admin listener (health)."""
        return str(self._ready["admin_listen"])

    @property
    def metrics_address(self) -> str:
        """host:port of the Prometheus listener."""
        return str(self._ready["metrics_listen"])

    @property
    def metrics_token(self) -> str:
        """Token for metrics and status on this machine; empty if no token is needed."""
        path = self._ready.get("metrics_token_file")
        return Path(path).read_text().strip() if path else ""

    def page(self, path: str) -> tuple[str, dict[str, str]]:
        """Return body and headers of a page on the metrics listener; raise urllib.error.HTTPError."""
        return fetched(f"http://{self.metrics_address}{path}", token=self.metrics_token)

    @property
    def tcp_endpoint(self) -> str:
        """Flight listener as a value for Spark's settings."""
        return f"grpc://{self.tcp_address}"

    def members(self) -> list[psutil.Process]:
        """Return all live processes of the service, the first one being the process that was started."""
        try:
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def log(self) -> str:
        """Return the tail of the service's log."""
        return self.log_file.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]

    def _ready_or_dead(self) -> dict[str, Any] | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the {self._noun} ended with status {self._process.returncode}:\n{self.log()}")
        try:
            return dict(json.loads(self._ready_file.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
