# SPDX-License-Identifier: Apache-2.0
"""Policy for model processes: which ones end to make room for another, and when a dead one is restarted.

The module `models` carries these decisions out.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A process with exchanges is left alone for this time after it has loaded, so that two functions that compete for
# memory take turns.
RESIDENT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
# If a process has served for this long, its death counts as the first one.
_FORGIVEN_SECONDS = 60.0


class Resident(NamedTuple):
    """Model process that has loaded its function."""

    model: str
    """Id of the process."""
    memory_bytes: int
    connections: int
    ready_seconds: float
    """Time when the process became ready."""
    last_used_seconds: float


def victims(residents: Sequence[Resident], excess_bytes: int, now_seconds: float) -> Sequence[str]:
    """Return the processes to end so that at least `excess_bytes` become free, or as many bytes as possible.

    Processes without exchanges come first, then the least recently used.
    """
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
        """Time until a process may be started; 0 means now."""
        return max(0.0, self._next_start_seconds - self._clock())

    def died(self, ready_seconds: float | None) -> None:
        """Record the unexpected end of a process that loaded its function at `ready_seconds`; None means never."""
        now = self._clock()
        if ready_seconds is not None and now - ready_seconds >= _FORGIVEN_SECONDS:
            self._deaths = 0
        # A retry right after a failed load would probably fail too, so such a first death counts twice.
        self._deaths += 1 if ready_seconds is not None or self._deaths else 2
        pause_seconds = _FIRST_PAUSE_SECONDS * 2 ** (self._deaths - 2) if self._deaths > 1 else 0.0
        self._next_start_seconds = now + min(pause_seconds, _LONGEST_PAUSE_SECONDS)
