# SPDX-License-Identifier: Apache-2.0
"""A zygote as its supervisor holds it: what it loads has its own time."""

from collections.abc import Mapping, Sequence

from updraft.service.child import Child
from updraft.service.heartbeat import INTERVAL_SECONDS
from updraft_server.ipc.load import Load
from updraft_server.ipc.loading_note import NOTE_VARIABLE, LoadingNote

_FIRST_WORD_TURNS = 10
_TURNS_BETWEEN_WORDS = 60


class ZygoteChild(Child):
    """A zygote. Its heart does not beat before it has loaded everything, but it says what it loads."""

    def __init__(self, environment: Mapping[str, str], inherited_descriptors: Sequence[int]) -> None:
        self._note = LoadingNote.made()
        descriptor = self._note.descriptor
        super().__init__(
            "updraft_server.zygote.process",
            {**environment, NOTE_VARIABLE: str(descriptor)},
            [*inherited_descriptors, descriptor],
        )
        self.load: Load | None = None
        """What it ran at the last look, or when it ended."""
        self._turns = 0
        """Looks that have found it at this load."""

    def is_stuck(self) -> bool:
        """As of every child, but for the time in which it runs an author's code: that is limited by itself."""
        # Turns are counted and no clock is read, as for every child.
        before, self.load = self.load, self._note.read()
        self._turns = self._turns + 1 if self.load is not None and self.load == before else 0
        if self.load is None:
            return super().is_stuck()
        return 0 < self.load.limit_seconds <= self._turns * INTERVAL_SECONDS

    @property
    def patience(self) -> str:
        """What to tell an operator who waits, at this look; mostly nothing."""
        if self.load is None or self._turns % _TURNS_BETWEEN_WORDS != _FIRST_WORD_TURNS:
            return ""
        limit = f"the limit is {self.load.limit_seconds:g}" if self.load.limit_seconds else "there is no limit"
        return f"{self.load} has been loading for {self._turns * INTERVAL_SECONDS:g} seconds, {limit}"

    def reaped(self, code: int) -> None:
        """Note that it has ended, and at what."""
        super().reaped(code)
        self.load = self._note.read()
        self._note.close()
