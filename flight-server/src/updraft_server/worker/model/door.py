# SPDX-License-Identifier: Apache-2.0
"""The door: a socket of its own, inherited from the zygote, over which a worker asks it for ways to model processes.

A packet each way. A worker asks for nothing while it waits for an answer. It closes the door before it is bound to a
session: no function of a session finds a way to a model.
"""

import json
import select
import socket
from typing import NamedTuple

MAX_PACKET_BYTES = 16 * 1024
WORKER_DOOR = 6
"""The descriptor at which a worker finds it."""


class Connect(NamedTuple):
    """The worker wants a connection to a function's model process."""

    name: str
    version: str


class AskFate(NamedTuple):
    """The worker's connection has ended without a goodbye: how did that model process end?"""

    replica: str


class Connected(NamedTuple):
    """The zygote's answer to Connect, with the worker's end of a new pair of sockets."""

    replica: str
    """Names the process."""


class Refused(NamedTuple):
    """The other answer to Connect."""

    reason: str
    """Goes on after the name of the function."""
    may_retry: bool
    """Whether the function may work again soon."""


class Fate(NamedTuple):
    """The answer to AskFate."""

    how: str
    """Goes on after "its model process"."""


Packet = Connect | AskFate | Connected | Refused | Fate

_PACKETS: dict[str, type[Packet]] = {cls.__name__: cls for cls in (Connect, AskFate, Connected, Refused, Fate)}


class DoorError(Exception):
    """Raised when a packet cannot be read, or the other side is gone."""


def encode(packet: Packet) -> bytes:
    """A packet as it travels."""
    return json.dumps([type(packet).__name__, *packet]).encode()


def decode(data: bytes) -> Packet:
    """Raises DoorError."""
    try:
        name, *fields = json.loads(data)
        return _PACKETS[name](*fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DoorError(f"not a packet: {error}") from None


class Door:
    """The worker's end."""

    def __init__(self, descriptor: int | None = None) -> None:
        """`descriptor`: None where the pool has no models."""
        self._socket = None if descriptor is None else socket.socket(fileno=descriptor)

    @property
    def is_lost(self) -> bool:
        """Whether the zygote that it led to has gone away: no model can be reached from here any more."""
        if self._socket is None:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Give up all ways to models for good; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, question: Connect | AskFate) -> tuple[Packet, socket.socket | None]:
        """The zygote's answer, and the connection that comes with Connected; raises DoorError."""
        if self._socket is None:
            raise DoorError("this worker has no connection to the zygote")
        try:
            self._socket.send(encode(question))
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_PACKET_BYTES, 1)
        except OSError as error:
            raise DoorError(f"the zygote does not answer: {error.strerror or error}") from None
        if not data:
            raise DoorError("the zygote has gone away")
        connection = socket.socket(fileno=descriptors[0]) if descriptors else None
        if connection is not None:
            connection.set_inheritable(False)
        return decode(data), connection
