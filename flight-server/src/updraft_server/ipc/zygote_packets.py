# SPDX-License-Identifier: Apache-2.0
"""What the front and the zygote say to each other over a Unix socket of whole packets.

The front asks for forks; the zygote answers with a pid and two descriptors (the front's end of the worker's
socketpair, and the end to read of its output), and reports exits. A connection that closes takes its workers with it.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from updraft_server.ipc.worker_settings import WorkerSettings

MAX_PACKET_BYTES = 64 * 1024
FORKED_DESCRIPTORS = 2

SETTINGS_VARIABLE = "UPDRAFT_ZYGOTE_SETTINGS"
LISTENER_VARIABLE = "UPDRAFT_ZYGOTE_LISTENER"
LIFELINE_VARIABLE = "UPDRAFT_ZYGOTE_LIFELINE"

EXIT_IMAGE_BROKEN = 78
"""The zygote cannot load what it was told to: starting it again would not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZygoteSettings:
    """What a zygote loads and what its workers obey."""

    function_modules: Sequence[str] = ()
    """Modules to import; they register functions."""
    files_directory: str = "/nonexistent"
    """An empty directory that stands for Spark's directory of distributed files."""
    worker: WorkerSettings = WorkerSettings()  # noqa: RUF009

    def encode(self) -> str:
        """As JSON, for the zygote's environment."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> "ZygoteSettings":
        """The inverse of `encode`."""
        fields = json.loads(text)
        return cls(**{**fields, "worker": WorkerSettings(**fields["worker"])})


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """The zygote's first packet: what its workers are."""

    pid: int
    python_version: str
    pyspark_version: str
    functions: Sequence[Sequence[str]]
    """(name, version, doc) of each registered function."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fork:
    """The front's request for one worker."""

    request: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forked:
    """A worker was forked; comes with FORKED_DESCRIPTORS."""

    request: int
    pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class ForkFailed:
    """No worker could be forked."""

    request: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Exited:
    """A worker has ended; one of the two says how."""

    pid: int
    exit_code: int | None
    signal: int | None


Packet: TypeAlias = Hello | Fork | Forked | ForkFailed | Exited

_PACKETS: dict[str, type[Any]] = {cls.__name__: cls for cls in (Hello, Fork, Forked, ForkFailed, Exited)}


class PacketError(Exception):
    """Raised when a packet cannot be read: the two ends do not come from the same installation."""


def encode(packet: Packet) -> bytes:
    """A packet as it travels."""
    return json.dumps([type(packet).__name__, dataclasses.asdict(packet)]).encode()


def decode(data: bytes) -> Packet:
    """Raises PacketError."""
    try:
        name, fields = json.loads(data)
        packet: Packet = _PACKETS[name](**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise PacketError(f"not a packet: {error}") from None
    return packet
