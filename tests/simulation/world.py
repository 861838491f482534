# SPDX-License-Identifier: Apache-2.0
"""World of one run: its clock, its random numbers, and the trace of everything that happened."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from tests.simulation.virtual_loop import VirtualLoop

NANOS_PER_SECOND = 1_000_000_000


class ViolationError(Exception):
    """Raised when an invariant does not hold."""


class World:
    """Clock, random numbers and trace of one run. A simulation must use no other source of chance or time."""

    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self.lines: list[str] = []
        """Trace in words, if the run keeps it."""
        self._keeps_lines = keeps_lines
        self._digest = hashlib.blake2b(digest_size=16)
        self.events = 0

    @property
    def now(self) -> float:
        """Time in seconds."""
        return self.loop.time()

    @property
    def nanos(self) -> int:
        """Time in nanoseconds."""
        return round(self.loop.time() * NANOS_PER_SECOND)

    @property
    def digest(self) -> str:
        """Digest of the trace; equal runs have equal digests."""
        return self._digest.hexdigest()

    def note(self, *words: object) -> None:
        """Add an event to the trace."""
        line = f"{self.loop.time():.6f} {' '.join(map(str, words))}"
        self.events += 1
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        if self._keeps_lines:
            self.lines.append(line)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def between(self, least: int, most: int) -> int:
        """Return a whole number from `least` to `most`, both included."""
        return self.random.randint(least, most)

    def seconds(self, mean: float) -> float:
        """Return a random time around `mean`. Most times are near `mean`; a few are several times as long."""
        return mean * min(0.5 + self.random.expovariate(2.0), 8.0)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` after this time."""
        self.loop.call_later(seconds, action)
