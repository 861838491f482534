# SPDX-License-Identifier: Apache-2.0
"""Which model processes have to end so that another one has room, and when one that died is started again.

Policy alone: `models` acts on it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A process with exchanges keeps its memory for so long at least: two functions that want the same room take turns.
RESIDENT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
# After so much service a death is the first of its kind.
_FORGIVEN_SECONDS = 60.0


class Resident(NamedTuple):
    """A model process that has loaded its function."""

    model: str
    """Its id."""
    memory_bytes: int
    connections: int
    ready_seconds: float
    """When it was ready."""
    last_used_seconds: float


def victims(residents: Sequence[Resident], excess_bytes: int, now_seconds: float) -> Sequence[str]:
    """The processes to end so that at least `excess_bytes` become free, or as much as can: those without exchanges
    before the others, and of these the least recently used first."""
    free_to_go = [
        resident
        for resident in residents
        if not resident.connections or now_seconds >= resident.ready_seconds + RESIDENT_SECONDS
    ]
    free_to_go.sort(key=lambda resident: (resident.connections > 0, resident.last_used_seconds))
    chosen = []
    for resident in free_to_go:
        if excess_bytes <= 0:
            break
        chosen.append(resident.model)
        excess_bytes -= resident.memory_bytes
    return chosen


class Backoff:
    """Pauses between the starts of a function's processes: none after the first death, then longer and longer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deaths = 0
        self._next_start_seconds = -math.inf

    @property
    def pause_seconds(self) -> float:
        """Until a process may be started; 0 for now."""
        return max(0.0, self._next_start_seconds - self._clock())

    def died(self, ready_seconds: float | None) -> None:
        """A process has ended that nobody had asked to; `ready_seconds`: when it had loaded its function, if it had."""
        now = self._clock()
        if ready_seconds is not None and now - ready_seconds >= _FORGIVEN_SECONDS:
            self._deaths = 0
        # One that cannot load will hardly do so at once.
        self._deaths += 1 if ready_seconds is not None or self._deaths else 2
        pause_seconds = _FIRST_PAUSE_SECONDS * 2 ** (self._deaths - 2) if self._deaths > 1 else 0.0
        self._next_start_seconds = now + min(pause_seconds, _LONGEST_PAUSE_SECONDS)
