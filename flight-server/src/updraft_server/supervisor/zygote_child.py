# SPDX-License-Identifier: Apache-2.0
"""Supervisor's record of a zygote: while the zygote loads an author's code, the limits of that load apply."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from updraft.container_memory import memory_limits
from updraft.service.child import Child
from updraft.service.heartbeat import INTERVAL_SECONDS
from updraft_server.ipc.load import Load
from updraft_server.ipc.loading_note import NOTE_VARIABLE, LoadingNote
from updraft_server.linux.process_trees import process_trees

# Share of all memory that a zygote may take. If it took all memory, the kernel might end the whole container.
_MOST_MEMORY = 0.9
# Number of loads that are remembered. They are the ones that took the most memory, one of which is at fault.
_MOST_LOADS = 100
_FIRST_WORD_TURNS = 10
_TURNS_BETWEEN_WORDS = 60


class Excess(NamedTuple):
    """Load that has to be left out."""

    load: Load
    reason: str


class LoadWatch:
    """Watch over the time and memory of a zygote's load; it looks every `heartbeat.INTERVAL_SECONDS`.

    It counts looks and reads no clock, so time in which the supervisor itself stood still does not count.
    """

    def __init__(self, note: LoadingNote, memory_bytes: Callable[[], int], all_bytes: int) -> None:
        """Create a watch that has not looked yet.

        Args:
            note: Note in which the zygote records its load.
            memory_bytes: Returns the memory that the zygote and the processes that it has started use now.
            all_bytes: Memory of the container or machine.
        """
        self._note = note
        self._memory_bytes = memory_bytes
        self._all_bytes = all_bytes
        self.load: Load | None = None
        """Load at the last look; None if no author's code was running."""
        self.excess: Excess | None = None
        """Why the zygote has to end, according to the last look; None if it need not."""
        self._turns = 0
        self._held_bytes = 0
        self._grown_bytes: dict[Load, int] = {}
        """Growth of the memory during each load, for at most `_MOST_LOADS` of them."""

    def look(self) -> None:
        """Check the load, its time and its memory once more."""
        before, self.load = self.load, self._note.read()
        self._turns = self._turns + 1 if self.load is not None and self.load == before else 0
        self.excess = None if self.load is None else self._late(self.load) or self._too_large(self.load)

    @property
    def patience(self) -> str:
        """Message to print at this look for an operator who waits; usually empty."""
        if self.load is None or self._turns % _TURNS_BETWEEN_WORDS != _FIRST_WORD_TURNS:
            return ""
        limit = f"the limit is {self.load.limit_seconds:g}" if self.load.limit_seconds else "there is no limit"
        return f"{self.load} has been loading for {self._turns * INTERVAL_SECONDS:g} seconds, {limit}"

    def _late(self, load: Load) -> Excess | None:
        is_late = 0 < load.limit_seconds <= self._turns * INTERVAL_SECONDS
        return Excess(load, load.lateness) if is_late else None

    def _too_large(self, load: Load) -> Excess | None:
        before_bytes, self._held_bytes = self._held_bytes, self._memory_bytes()
        self._grown_bytes[load] = self._grown_bytes.get(load, 0) + self._held_bytes - before_bytes
        if len(self._grown_bytes) > _MOST_LOADS:
            others = (each for each in self._grown_bytes if each != load)
            del self._grown_bytes[min(others, key=lambda each: self._grown_bytes[each])]
        most_bytes = int(_MOST_MEMORY * self._all_bytes)
        if self._held_bytes <= most_bytes:
            return None
        largest = max(self._grown_bytes, key=lambda each: self._grown_bytes[each])
        return Excess(
            largest,
            f"it took {self._grown_bytes[largest]} bytes of memory, and everything loaded took more than {most_bytes} "
            f"together, {_MOST_MEMORY:.0%} of all memory: it leaks, or the pool needs more memory",
        )


class ZygoteChild(Child):
    """Zygote process. Its heartbeat starts once it has loaded everything; until then it reports what it loads."""

    def __init__(self, environment: Mapping[str, str], inherited_descriptors: Sequence[int]) -> None:
        self._note = LoadingNote.made()
        all_bytes = min(memory_limits().values())
        self._watch = LoadWatch(self._note, lambda: process_trees([self.pid])[self.pid].own_bytes, all_bytes)
        descriptor = self._note.descriptor
        super().__init__(
            "updraft_server.zygote.process",
            {**environment, NOTE_VARIABLE: str(descriptor)},
            [*inherited_descriptors, descriptor],
        )

    @property
    def load(self) -> Load | None:
        """Load at the last look, or when it ended."""
        return self._watch.load

    @property
    def patience(self) -> str:
        """Message to print at this look for an operator who waits for it; usually empty."""
        return self._watch.patience

    @property
    def excess(self) -> Excess | None:
        """Why it has to end, according to the last look; None if it need not."""
        return self._watch.excess

    @property
    def faults(self) -> Mapping[str, str]:
        """Faults by the names of modules and functions; valid from when it has started until it ends."""
        return self._note.read_faults()

    def is_stuck(self) -> bool:
        """Return whether it is stuck; while it runs an author's code, only the limits of that load count."""
        self._watch.look()
        return super().is_stuck() if self.load is None else self.excess is not None

    def reaped(self, code: int) -> None:
        """Record that it has ended, and during which load."""
        super().reaped(code)
        self._watch.look()
        self._note.close()
