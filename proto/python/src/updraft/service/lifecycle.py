# SPDX-License-Identifier: Apache-2.0
"""Life cycle of a service (STARTING, READY, DRAINING, STOPPED), events that change its phase, and its ready file."""

import asyncio
import enum
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from updraft.service.heartbeat import INTERVAL_SECONDS, Heartbeat

AnyPhase = TypeVar("AnyPhase", bound=enum.Enum)
AnyEvent = TypeVar("AnyEvent", bound=enum.Enum)


class StartError(Exception):
    """Raised when a service cannot start; the message says what to change."""


class Phase(enum.Enum):
    """Phase of a service's life cycle."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Event(enum.Enum):
    """Event that moves a service to another phase."""

    STARTED = "started"
    DRAIN_REQUESTED = "drain requested"
    DRAINED = "drained"


TRANSITIONS = {
    (Phase.STARTING, Event.STARTED): Phase.READY,
    (Phase.STARTING, Event.DRAIN_REQUESTED): Phase.DRAINING,
    (Phase.READY, Event.DRAIN_REQUESTED): Phase.DRAINING,
    (Phase.DRAINING, Event.DRAINED): Phase.STOPPED,
    # Neither a second SIGTERM nor a start that completes during a drain changes anything.
    (Phase.DRAINING, Event.DRAIN_REQUESTED): Phase.DRAINING,
    (Phase.DRAINING, Event.STARTED): Phase.DRAINING,
    (Phase.STOPPED, Event.DRAIN_REQUESTED): Phase.STOPPED,
}


def next_phase(transitions: Mapping[tuple[AnyPhase, AnyEvent], AnyPhase], phase: AnyPhase, event: AnyEvent) -> AnyPhase:
    """Return the phase after `event`; raise ValueError if the event cannot happen in `phase`."""
    try:
        return transitions[phase, event]
    except KeyError:
        raise ValueError(f"{event.value} cannot happen while {phase.value}") from None


class Lifecycle:
    """Phase of one service, with subscribers that are called when the phase changes."""

    def __init__(self) -> None:
        self._phase = Phase.STARTING
        self._subscribers: list[Callable[[Phase], None]] = []
        self._left_ready = asyncio.Event()

    @property
    def phase(self) -> Phase:
        """Current phase."""
        return self._phase

    def handle(self, event: Event) -> None:
        """Move to the next phase, and notify subscribers if the phase has changed."""
        phase = next_phase(TRANSITIONS, self._phase, event)
        if phase is self._phase:
            return
        self._phase = phase
        if phase in (Phase.DRAINING, Phase.STOPPED):
            self._left_ready.set()
        for subscriber in self._subscribers:
            subscriber(phase)

    def subscribe(self, subscriber: Callable[[Phase], None]) -> None:
        """Call `subscriber` with every new phase."""
        self._subscribers.append(subscriber)

    async def drain_requested(self) -> None:
        """Wait until the service must drain."""
        await self._left_ready.wait()


async def keep_beating(heartbeat: Heartbeat) -> None:
    """Send heartbeats to the supervisor from the running event loop, until cancelled."""
    while True:
        heartbeat.beat()
        await asyncio.sleep(INTERVAL_SECONDS)


class ReadyFile:
    """File written when the service is ready and whenever its contents change. Readers never see a partial file."""

    def __init__(self, path: Path, content: Callable[[], Mapping[str, object]]) -> None:
        self._path = path
        self._content = content
        self._written = ""

    def update(self) -> None:
        """Write the file if its contents have changed; raise StartError if that fails."""
        content = json.dumps(dict(self._content()), indent=2)
        if content == self._written:
            return
        self._written = content
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            partial.write_text(content)
            partial.replace(self._path)
        except OSError as error:
            raise StartError(f"cannot write --ready-file {self._path}: {error.strerror}") from error
