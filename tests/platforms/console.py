# SPDX-License-Identifier: Apache-2.0
"""Terminal for a guide's commands, which leaves their background processes running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.paths import PYTHON
from tests.support.ports import free_ports
from tests.support.waiting import HANG_SECONDS, until


class Console:
    """Context manager: one bash for all commands, and a process group that ends with it."""

    def __init__(self, directory: Path, commands: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._script = "\n".join([*commands, "wait"])
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes]

    @property
    def printed(self) -> str:
        """Return everything that the commands have printed so far."""
        return (self._directory / "console.log").read_text(errors="replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the text was printed this many times; raise AssertionError if the shell ends before that."""

        def printed() -> bool:
            assert self._process.poll() is None, self.printed
            return self.printed.count(text) >= times

        try:
            until(f"{text} is printed", printed, timeout_seconds=HANG_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.printed}") from None

    def __enter__(self) -> Self:
        path = f"{PYTHON.parent}:{os.environ['PATH']}"
        with (self._directory / "console.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-eu", "-o", "pipefail", "-c", self._script],
                cwd=self._directory,
                env={**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            until("everything has ended", self._gone)
        except TimeoutError:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise

    def _gone(self) -> bool:
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False


class OtherPorts:
    """Free ports of this machine, which replace a guide's ports."""

    def __init__(self, *named: int) -> None:
        self._instead = {str(port): str(free) for port, free in zip(named, free_ports(), strict=False)}

    def into(self, text: str) -> str:
        """Return the text with the free ports."""
        return re.sub(r"\b\d{4,5}\b", lambda match: self._instead.get(match[0], match[0]), text)
