# SPDX-License-Identifier: Apache-2.0
"""A zygote as its supervisor holds it: what it loads has its own time."""

from collections.abc import Mapping, Sequence

from updraft.service.child import Child
from updraft.service.heartbeat import INTERVAL_SECONDS
from updraft_server.ipc.load import Load
from updraft_server.ipc.loading_note import NOTE_VARIABLE, LoadingNote

_FIRST_WORD_TURNS = 10
_TURNS_BETWEEN_WORDS = 60


class LoadWatch:
    """How long a zygote has been at its load, in looks that come every `heartbeat.INTERVAL_SECONDS`.

    Looks are counted and no clock is read: time in which the supervisor stood still itself does not count.
    """

    def __init__(self, note: LoadingNote) -> None:
        self._note = note
        self.load: Load | None = None
        """What it ran at the last look; None where that was no code of an author."""
        self._turns = 0

    def look(self) -> None:
        """Look once more."""
        before, self.load = self.load, self._note.read()
        self._turns = self._turns + 1 if self.load is not None and self.load == before else 0

    @property
    def is_late(self) -> bool:
        """Whether the load has taken longer than it may."""
        return self.load is not None and 0 < self.load.limit_seconds <= self._turns * INTERVAL_SECONDS

    @property
    def patience(self) -> str:
        """What to tell an operator who waits, at this look; mostly nothing."""
        if self.load is None or self._turns % _TURNS_BETWEEN_WORDS != _FIRST_WORD_TURNS:
            return ""
        limit = f"the limit is {self.load.limit_seconds:g}" if self.load.limit_seconds else "there is no limit"
        return f"{self.load} has been loading for {self._turns * INTERVAL_SECONDS:g} seconds, {limit}"


class ZygoteChild(Child):
    """A zygote. Its heart does not beat before it has loaded everything, but it says what it loads."""

    def __init__(self, environment: Mapping[str, str], inherited_descriptors: Sequence[int]) -> None:
        self._note = LoadingNote.made()
        self._watch = LoadWatch(self._note)
        descriptor = self._note.descriptor
        super().__init__(
            "updraft_server.zygote.process",
            {**environment, NOTE_VARIABLE: str(descriptor)},
            [*inherited_descriptors, descriptor],
        )

    @property
    def load(self) -> Load | None:
        """What it ran at the last look, or when it ended."""
        return self._watch.load

    @property
    def patience(self) -> str:
        """What to tell an operator who waits for it, at this look; mostly nothing."""
        return self._watch.patience

    def is_stuck(self) -> bool:
        """As of every child, but for the time in which it runs an author's code: that is limited by itself."""
        self._watch.look()
        return super().is_stuck() if self.load is None else self._watch.is_late

    def reaped(self, code: int) -> None:
        """Note that it has ended, and at what."""
        super().reaped(code)
        self._watch.look()
        self._note.close()
