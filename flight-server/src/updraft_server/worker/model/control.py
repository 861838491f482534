# SPDX-License-Identifier: Apache-2.0
"""What the zygote and a model process say to each other, a packet at a time, over a socket of their own."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

MAX_PACKET_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Attach:
    """The zygote brings a worker's connection; comes with its descriptor."""


@dataclasses.dataclass(frozen=True, slots=True)
class Retire:
    """The zygote wants the process to answer what it has read, to say goodbye to all workers, and to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """The function is loaded and warm."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadFailed:
    """The function cannot be loaded; the process ends."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What the process does, sent after changes, but not after each of many."""

    attached: int
    """Connections that the zygote has brought since the process started."""
    connections: int
    """Those of them that are open."""
    last_used_seconds: float
    """When it last had rows, on the clock of the machine (CLOCK_MONOTONIC)."""
    record: Sequence[Any]
    """`BatchRecord.to_plain`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """The function begins or has finished a batch of suspect rows alone: rows that may have ended a process before."""

    is_running: bool


Packet: TypeAlias = Attach | Retire | Ready | LoadFailed | State | Suspect

_PACKETS: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Packet)}


class ControlError(Exception):
    """Raised when a packet cannot be read."""


def encode(packet: Packet) -> bytes:
    """A packet as it travels."""
    return json.dumps([type(packet).__name__, dataclasses.asdict(packet)]).encode()


def decode(data: bytes) -> Packet:
    """Raises ControlError."""
    try:
        name, fields = json.loads(data)
        packet: Packet = _PACKETS[name](**fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ControlError(f"not a packet: {error}") from None
    return packet
