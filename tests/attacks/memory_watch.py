# SPDX-License-Identifier: Apache-2.0
"""Peak memory of any process of a service during an attempt."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil

_LOOK_SECONDS = 0.05


class MemoryWatch:
    """Watch over a process and its descendants, including short-lived ones; a context manager."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        """Peak of the resident memory of the largest process."""
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._looks.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looks.join()

    def _look(self) -> None:
        while True:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (self._root, *self._root.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)
            if self._ended.wait(_LOOK_SECONDS):
                return
