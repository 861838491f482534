# SPDX-License-Identifier: Apache-2.0
"""What the front and the zygote say to each other over a Unix socket of whole packets.

The front asks for workers, kills them and asks for what they use; the zygote names each worker by an id, hands over two
descriptors (the front's end of the worker's socketpair, and the end to read of its output) and reports exits. Only the
zygote's side acts on process ids: the two sides may live in different PID namespaces.

A connection that closes takes its workers with it. A zygote that dies does not: its successor takes them over, and the
front claims those that it still holds. The successor of one that died continues all workers before it loads anything:
the front's next exchange does not wait for that. A zygote that retires continues its own.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from updraft_server.ipc.load import Load
from updraft_server.ipc.model_packets import (
    LimitModels,
    MeasuredModels,
    MeasureModels,
    ModelEnded,
    ModelFault,
    ModelStarted,
)
from updraft_server.ipc.worker_settings import WorkerSettings

MAX_PACKET_BYTES = 64 * 1024
MAX_WORKERS_PER_PACKET = 256
"""Workers that one packet may name, so that it and its answer fit."""
FORKED_DESCRIPTORS = 3

SETTINGS_VARIABLE = "UPDRAFT_ZYGOTE_SETTINGS"
DOOR_VARIABLE = "UPDRAFT_ZYGOTE_DOOR"
LIFELINE_VARIABLE = "UPDRAFT_ZYGOTE_LIFELINE"

EXIT_IMAGE_BROKEN = 78
"""The zygote cannot load what it was told to: starting it again would not help."""
EXIT_LAYER_MISSING = 79
"""A required layer of the sandbox is off: starting the zygote again would not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZygoteSettings:
    """What a zygote loads and what its workers obey."""

    function_modules: Sequence[str] = ()
    """Modules to import; they register functions."""
    files_directory: str = "/nonexistent"
    """An empty directory that stands for Spark's directory of distributed files."""
    workers_directory: str = "/nonexistent"
    """Where a zygote notes its workers, for the zygote that follows it."""
    scratch_directory: str = "/nonexistent"
    """Where each worker has a directory of its own, for as long as it lives."""
    worker: WorkerSettings = WorkerSettings()  # noqa: RUF009
    restricted: bool = False
    """Whether functions have neither network nor subprocesses."""
    shared_memory: str = "own"
    """Whose /dev/shm workers have: a worker's own where that is possible, the pool's alone, or the machine's."""
    required_layers: Sequence[str] = dataclasses.field(default_factory=list)
    """Layers of the sandbox without which it does not start."""
    model_memory_bytes: int = 0
    """What all model processes may hold together; 0 sets no limit."""
    generation: int = 0
    """How often functions were loaded again before."""
    is_successor: bool = False
    """Whether it takes over from a zygote that lives."""
    broken_loads: Sequence[tuple[Load, str]] = dataclasses.field(default_factory=list)
    """What it leaves out, with the reason for those who call the functions."""

    def encode(self) -> str:
        """As JSON, for the zygote's environment."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> "ZygoteSettings":
        """The inverse of `encode`."""
        fields = json.loads(text)
        # JSON has no tuples.
        broken_loads = [(Load(**load), fault) for load, fault in fields["broken_loads"]]
        worker: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields["worker"].items()}
        return cls(**{**fields, "broken_loads": broken_loads, "worker": WorkerSettings(**worker)})


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """The zygote's first packet: what its workers are."""

    pid: int
    """Of the zygote on its own side: for people to read, never to act on."""
    python_version: str
    pyspark_version: str
    functions: Sequence[str]
    """Each registered function, as `encode_functions` writes it; those that do not fit follow in MoreFunctions."""
    sandbox: Sequence[Sequence[str]] = dataclasses.field(default_factory=list)
    """The fields of `SandboxLayer`, of each layer."""
    memory_limit_bytes: int = 0
    """Memory of the container or machine that the zygote and all workers share."""
    more: int = 0
    """The number of functions that follow."""
    generation: int = 0
    """That of ZygoteSettings: workers of another one have loaded other code."""


@dataclasses.dataclass(frozen=True, slots=True)
class MoreFunctions:
    """Some of the functions that did not fit into Hello."""

    functions: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """The front still holds these workers of an earlier zygote. Exited answers for each that is gone."""

    workers: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Fork:
    """The front's request for one worker."""

    request: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forked:
    """A worker was forked; comes with FORKED_DESCRIPTORS."""

    request: int
    worker: str
    """Names the worker from now on; no other worker of this or a later zygote has the same id."""
    pid: int
    """On the zygote's side: for people to read, never to act on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForkFailed:
    """No worker could be forked."""

    request: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """The front wants a worker to end now; Exited follows."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """The front wants a worker without an exchange to use no CPU until Continue; nothing answers."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Continue:
    """The front has an exchange for a worker that it may have stopped; nothing answers."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShowStack:
    """The front wants a worker to write its stacks to its pipe (`worker_stack`); nothing answers beside that."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """An owner's last exchange has ended: what nobody uses in a /dev/shm that is the pool's alone may be its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """The front asks what workers use: MAX_WORKERS_PER_PACKET of them at most."""

    request: int
    workers: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """The answer: what is known of each worker that lives."""

    request: int
    usage: Mapping[str, tuple[Any, ...]]
    """The fields of `WorkerUsage` by worker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exited:
    """A worker has ended."""

    worker: str
    status: int | None
    """Its exit code, or less than zero the signal that ended it; None where an earlier zygote forked it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Retired:
    """The zygote has a successor, which the front finds next: it forks nothing more, and leaves its workers to that.

    It tells of model processes as long as it has workers that may use them.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class ReloadRefused:
    """The supervisor refused a reload; the code that this zygote has loaded serves on."""

    fault: str


Packet: TypeAlias = (
    Hello
    | MoreFunctions
    | Claim
    | Fork
    | Forked
    | ForkFailed
    | Kill
    | Stop
    | Continue
    | ShowStack
    | Sweep
    | Measure
    | Measured
    | Exited
    | Retired
    | ReloadRefused
    | LimitModels
    | ModelStarted
    | ModelEnded
    | ModelFault
    | MeasureModels
    | MeasuredModels
)

_PACKETS: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Packet)}


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
