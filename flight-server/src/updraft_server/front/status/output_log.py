# SPDX-License-Identifier: Apache-2.0
"""Latest lines that functions printed, kept in memory separately for each reader.

The service's log contains every line. This module keeps the latest lines for callers that cannot read that log. Each
caller can read the lines of its own exchanges (`updraft_server.front.status.readers`), and an administrator can read
all lines. The memory is bounded for each reader and in total. If a caller uses many keys, lines of its own older keys
are dropped first.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from updraft_server.pool.worker_events import DroppedOutput, Reader, WorkerOutput

KEPT_LINES = 2000
KEPT_CHARACTERS = 512 * 1024
KEPT_READERS = 32
LONGEST_WAIT_SECONDS = 20.0

EVERYBODY: Final = None
"""Key of the lines of all exchanges, and of output that belongs to no single exchange."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a function's output."""

    time_microseconds: int
    """Time in microseconds since 1970, later than that of every earlier line."""
    text: str
    fields: Mapping[str, str]
    """Worker, function and task, as in the service's log."""

    def to_plain(self) -> dict[str, Any]:
        """Return the line for JSON."""
        return {**self.fields, "line": self.text, "time_microseconds": self.time_microseconds}


@dataclass(eq=False, slots=True)
class _Lines:
    """Lines of one reader, the oldest first."""

    identity: str
    lines: deque[Line] = field(default_factory=deque)
    characters: int = 0

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self.characters += len(line.text)
        while len(self.lines) > KEPT_LINES or self.characters > KEPT_CHARACTERS:
            self.characters -= len(self.lines.popleft().text)


class OutputLog:
    """Latest output of a pool's functions. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last_microseconds = 0
        self._kept: OrderedDict[Reader | None, _Lines] = OrderedDict({EVERYBODY: _Lines("")})
        self._changed = asyncio.Event()

    def take(self, output: WorkerOutput) -> None:
        """Keep a line for the readers of its exchange."""
        self._add(output.line, output)

    def take_drop(self, dropped: DroppedOutput) -> None:
        """Keep a line that reports how many lines were dropped because a function printed too many."""
        self._add(f"[{dropped.lines} lines were dropped: the function printed too many]", dropped)

    async def lines(
        self,
        readers: Iterable[Reader | None],
        *,
        fields: Mapping[str, str],
        most: int,
        after_microseconds: int,
        wait_seconds: float,
    ) -> list[Line]:
        """Return the last lines that match, the oldest first. If no line matches, wait for later lines.

        Args:
            readers: Readers whose lines to return, or EVERYBODY.
            fields: Values that a line's fields must have.
            most: Maximum number of lines.
            after_microseconds: Time of the last line that the caller has received, or 0.
            wait_seconds: How long to wait.
        """
        wanted = tuple(readers)
        try:
            async with asyncio.timeout(min(wait_seconds, LONGEST_WAIT_SECONDS)):
                while not (found := self._found(wanted, fields, after_microseconds)):
                    # No line so far matches, so search only later lines next time.
                    after_microseconds = max(after_microseconds, self._last_microseconds)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return []
        return found[-most:]

    def _found(self, readers: Iterable[Reader | None], fields: Mapping[str, str], after: int) -> list[Line]:
        # Several of the readers may share a line; return it once.
        kept = {
            line.time_microseconds: line
            for reader in readers
            if reader in self._kept
            for line in takewhile(lambda line: line.time_microseconds > after, reversed(self._kept[reader].lines))
            if all(line.fields.get(name) == value for name, value in fields.items())
        }
        return [kept[moment] for moment in sorted(kept)]

    def _add(self, text: str, output: WorkerOutput | DroppedOutput) -> None:
        self._last_microseconds = max(int(self._clock() * 1e6), self._last_microseconds + 1)
        line = Line(self._last_microseconds, text, {"worker": output.worker, **output.context})
        self._kept[EVERYBODY].add(line)
        for reader in output.context.readers:
            if reader not in self._kept:
                self._kept[reader] = _Lines(reader.identity)
                self._keep_few()
            self._kept[reader].add(line)
            self._kept.move_to_end(reader)
        self._changed.set()

    def _keep_few(self) -> None:
        """If there are too many readers, drop the least recent reader of the identity that has the most."""
        readers = [reader for reader in self._kept if reader is not EVERYBODY]
        if len(readers) > KEPT_READERS:
            counts = Counter(reader.identity for reader in readers)
            most = max(counts.values())
            del self._kept[next(reader for reader in readers if counts[reader.identity] == most)]
