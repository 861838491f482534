# SPDX-License-Identifier: Apache-2.0
"""Packets between the zygote and a model process, over a separate socket."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

from updraft_server.ipc.packet_codec import PacketCodec

MAX_PACKET_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Attach:
    """Zygote to process: serve a worker over the connection whose descriptor comes with this packet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Retire:
    """Zygote to process: answer the requests that you have read, say goodbye to all workers, and exit."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunAlone:
    """Zygote to process: run each request that must not be repeated in its own batch, so that a crash has one cause."""

    until_seconds: float
    """Time on CLOCK_MONOTONIC until which the process has to do this."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """Process to zygote: the function is loaded and warm."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadFailed:
    """Process to zygote: the function cannot be loaded, and the process exits."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Process to zygote: current state, sent after changes. Changes in quick succession share one packet."""

    attached: int
    """Connections received from the zygote since the process started."""
    connections: int
    """Connections that are still open."""
    last_used_seconds: float
    """Time when the process last finished a batch, or when it started, on CLOCK_MONOTONIC."""
    record: Sequence[Any]
    """Value of `BatchRecord.to_plain`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """Process to zygote: the function is about to run, or has run, rows that may have killed another process."""

    is_running: bool


Packet: TypeAlias = Attach | Retire | RunAlone | Ready | LoadFailed | State | Suspect

_CODEC: PacketCodec[Packet] = PacketCodec(*get_args(Packet))
encode, decode = _CODEC.encode, _CODEC.decode
