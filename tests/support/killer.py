# SPDX-License-Identifier: Apache-2.0
"""Thread that kills workers of a pool periodically, while a test checks that results stay the same."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psutil


class Killer:
    """Context manager with a thread that sends SIGKILL to one of `victims()` every `every_seconds`."""

    def __init__(self, victims: Callable[[], Sequence[psutil.Process]], *, every_seconds: float, seed: int = 0):
        self._victims = victims
        self._every_seconds = every_seconds
        # Seeded, so that a failing run can be repeated.
        self._random = random.Random(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self.killed: list[int] = []

    def _run(self) -> None:
        while not self._done.wait(self._every_seconds):
            alive = list(self._victims())
            if not alive:
                continue
            victim = self._random.choice(alive)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                self.killed.append(victim.pid)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
