# SPDX-License-Identifier: Apache-2.0
"""Simulated network with a stream for each call. A stream delays messages, and may break, fall silent or disturb them.

gRPC delivers a stream's messages in order or breaks the stream; a silent stream loses all messages until both sides
notice the silence. A disturbed stream repeats a message or delivers it late, as a faulty proxy would. Both sides must
then refuse the stream instead of losing rows.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.world import World

# Time until HTTP/2 pings show each side that the other side is silent.
KEEPALIVE_SECONDS = 30.0


class StreamState(enum.Enum):
    """State of a stream: OPEN -> SILENT -> CLOSED, or OPEN -> CLOSED."""

    OPEN = "open"
    SILENT = "silent"
    CLOSED = "closed"


class Disturbance(enum.Enum):
    """Ways in which a faulty proxy disturbs one message."""

    REPEAT = "repeat"
    SWAP = "swap"


class _Direction:
    """Messages in one direction, in order."""

    def __init__(self, world: World, latency_seconds: float) -> None:
        self.world = world
        self.latency_seconds = latency_seconds
        self.disturbances: deque[Disturbance] = deque()
        self._last_arrival = 0.0

    def send(self, deliver: Callable[[], object]) -> None:
        disturbance = self.disturbances.popleft() if self.disturbances else None
        arrival = self.world.now + self.world.seconds(self.latency_seconds)
        # Give each message its own time, because timers with the same time fire in any order.
        self._last_arrival = max(self._last_arrival + 1e-6, arrival)
        late = self.latency_seconds * 20 if disturbance is Disturbance.SWAP else 0.0
        self.world.loop.call_at(self._last_arrival + late, deliver)
        if disturbance is Disturbance.REPEAT:
            self.world.loop.call_at(self._last_arrival, deliver)


class Stream:
    """One call between an executor and a pod or writer."""

    def __init__(self, world: World, name: str, latency_seconds: float) -> None:
        self.world = world
        self.name = name
        self.state = StreamState.OPEN
        self.on_reply: Callable[[Any], None] = lambda _message: None
        """Callback for a message that has reached the client."""
        self.on_broken: Callable[[], None] = lambda: None
        """Callback that tells the client that the connection broke."""
        self.server: asyncio.Task[Any] | None = None
        """Task that serves the call; a broken stream cancels it."""
        self._up = _Direction(world, latency_seconds)
        self._down = _Direction(world, latency_seconds)
        self._inbox: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None

    # The client's side.

    def send(self, message: Any) -> None:
        """Send a message to the server."""
        if self.state is StreamState.OPEN:
            self._up.send(lambda: self.deliver(message))

    def cancel(self) -> None:
        """End the call from the client's side; the server notices this unless the stream is silent."""
        if self.state is StreamState.OPEN:
            self._up.send(self._cancel_server)
        self.state = StreamState.CLOSED

    # The server's side.

    def reply(self, message: Any) -> None:
        """Send a message to the client."""
        if self.state is StreamState.OPEN:
            self._down.send(lambda: self._replied(message))

    def deliver(self, message: Any) -> None:
        """Put a message into the server's inbox, now."""
        self._inbox.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def receive(self) -> Any:
        """Return the next message of the client."""
        while not self._inbox:
            self._reader = self.world.loop.create_future()
            await self._reader
        return self._inbox.popleft()

    # Faults.

    def break_now(self) -> None:
        """Break the connection; both sides notice this soon."""
        if self.state is StreamState.CLOSED:
            return
        self.state = StreamState.CLOSED
        self.world.later(self.world.seconds(0.01), self._cancel_server)
        self.world.later(self.world.seconds(0.01), self.on_broken)

    def fall_silent(self) -> None:
        """Lose every message from now on; both sides notice this after KEEPALIVE_SECONDS."""
        if self.state is StreamState.OPEN:
            self.state = StreamState.SILENT
            self.world.later(KEEPALIVE_SECONDS, self._notice)

    def _notice(self) -> None:
        self.state = StreamState.CLOSED
        self._cancel_server()
        self.on_broken()

    def disturb(self, disturbance: Disturbance, *, upwards: bool) -> None:
        """Disturb the next message in one direction."""
        (self._up if upwards else self._down).disturbances.append(disturbance)

    def _replied(self, message: Any) -> None:
        if self.state is not StreamState.CLOSED:
            self.on_reply(message)

    def _cancel_server(self) -> None:
        if self.server is not None:
            self.server.cancel()
