# SPDX-License-Identifier: Apache-2.0
"""Watch for Python processes that an application's JVM starts."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_POLL_SECONDS = 0.05


class PythonWatch:
    """Thread that samples the processes below a driver several times a second.

    The thread misses a process that ends between two samples. Spark's daemon, which forks workers, lives for minutes.
    """

    def __init__(self, driver_pid: int) -> None:
        self._driver = psutil.Process(driver_pid)
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def seen(self) -> list[str]:
        """Return the command lines of the Python processes seen since the last call."""
        self._look()
        with self._lock:
            seen, self._seen = sorted(self._seen), set()
        return seen

    def _watch(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        for process in self._driver.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if Path(process.exe()).name.startswith("python"):
                    with self._lock:
                        self._seen.add(" ".join(process.cmdline()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
