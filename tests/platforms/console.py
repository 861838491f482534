# SPDX-License-Identifier: Apache-2.0
"""A terminal in which somebody types a guide's commands, and leaves what they start running in the background."""

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
        """All that the commands have printed so far."""
        return (self._directory / "console.log").read_text(errors="replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until it was printed so often; AssertionError when the shell has ended before that."""

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
    """Ports of this machine that are free, in the place of those that a guide names."""

    def __init__(self, *named: int) -> None:
        self._instead = {str(port): str(free) for port, free in zip(named, free_ports(), strict=False)}

    def into(self, text: str) -> str:
        """The text with them."""
        return re.sub(r"\b\d{4,5}\b", lambda match: self._instead.get(match[0], match[0]), text)
