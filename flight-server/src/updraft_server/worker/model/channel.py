# SPDX-License-Identifier: Apache-2.0
"""Worker's channel for models: a socket to the zygote, on which the worker asks for connections to model processes.

Each question and each answer is one packet, and a worker asks one question at a time. The worker closes the channel
before it runs a session function, so that no session function reaches a model.
"""

import select
import socket
from dataclasses import dataclass
from typing import TypeAlias, get_args

from updraft_server.ipc.packet_codec import PacketCodec, PacketError

MAX_PACKET_BYTES = 16 * 1024
MODEL_CHANNEL = 6
"""Descriptor number of a worker's model channel."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Question: connect me to a model process of a function."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class AskFate:
    """Question: how did this model process end? The worker asks this if a connection closes without a goodbye."""

    replica: str


@dataclass(frozen=True, slots=True)
class Connected:
    """Answer to Connect, with the worker's end of a new socket pair."""

    replica: str
    """Name of the model process."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to Connect if the zygote cannot provide a connection."""

    reason: str
    """Reason, worded to follow the name of the function."""
    may_retry: bool
    """Whether a retry may soon succeed."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Answer to AskFate."""

    how: str
    """Verb phrase that follows "its model process" and says how it ended."""


Packet: TypeAlias = Connect | AskFate | Connected | Refused | Fate

_CODEC: PacketCodec[Packet] = PacketCodec(*get_args(Packet))
encode, decode = _CODEC.encode, _CODEC.decode


class ModelChannelError(Exception):
    """Raised when the worker cannot reach the zygote, or the zygote does not answer."""


class ModelChannel:
    """Worker's end of its model channel."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Take over `descriptor`, which is None if the pool has no models."""
        self._socket = None if descriptor is None else socket.socket(fileno=descriptor)

    @property
    def is_lost(self) -> bool:
        """Whether the zygote at the other end has gone away, so that this worker can no longer reach models."""
        if self._socket is None:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the model channel for good; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, question: Connect | AskFate) -> tuple[Packet, socket.socket | None]:
        """Return the zygote's answer, and the new connection if the answer is Connected. Raises ModelChannelError."""
        if self._socket is None:
            raise ModelChannelError("this worker has no connection to the zygote")
        try:
            self._socket.send(encode(question))
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_PACKET_BYTES, 1)
        except OSError as error:
            raise ModelChannelError(f"the zygote does not answer: {error.strerror or error}") from None
        if not data:
            raise ModelChannelError("the zygote has gone away")
        connection = socket.socket(fileno=descriptors[0]) if descriptors else None
        if connection is not None:
            connection.set_inheritable(False)
        try:
            return decode(data), connection
        except PacketError as error:
            raise ModelChannelError(str(error)) from None
