# SPDX-License-Identifier: Apache-2.0
"""Packets between the front and the zygote, over a Unix socket that keeps packets whole.

The front requests workers, orders their end and requests their usage. The zygote gives each worker an id, hands over
four descriptors (the front's end of the worker's socketpair, the read ends of the worker's output and stacks, and a
pidfd) and reports exits. Only the zygote's side uses process ids, because the two sides may live in different PID
namespaces. If they do, the kernel also refuses the front's signals through the pidfd, so the front asks the zygote to
send signals.

When a front's connection closes, its workers end. When a zygote dies, its workers live on: the next zygote takes them
over, and the front claims the workers that it still holds. The successor of a dead zygote continues all stopped workers
before it loads anything, so that the front's next exchange does not wait for the load. A retiring zygote continues its
own stopped workers.
"""

import dataclasses
import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from updraft_server.ipc import model_packets
from updraft_server.ipc.load import Load
from updraft_server.ipc.packet_codec import PacketCodec
from updraft_server.ipc.worker_settings import WorkerSettings

STACK_SIGNAL = signal.SIGRTMAX - 3
"""Signal on which a worker writes its stacks to its pipe. A new worker ignores the signal until it sets a handler.

A debugger cannot attach to a worker, because the worker's memory is hidden. A worker that is stuck in C code can show
its stacks only on this signal.
"""
MAX_STACK_BYTES = 256 * 1024
"""Largest text of stacks. faulthandler writes less: at most a hundred threads with a hundred frames each."""


MAX_PACKET_BYTES = 64 * 1024
MAX_WORKERS_PER_PACKET = 256
"""Most workers that one packet may name, so that the packet and its answer stay within MAX_PACKET_BYTES."""
FORKED_DESCRIPTORS = 4

ZYGOTE_SETTINGS_VARIABLE = "UPDRAFT_ZYGOTE_SETTINGS"
SUPERVISOR_VARIABLE = "UPDRAFT_ZYGOTE_SUPERVISOR"
LIFELINE_VARIABLE = "UPDRAFT_ZYGOTE_LIFELINE"

EXIT_IMAGE_BROKEN = 78
"""Exit code of a zygote that cannot load the workers' image: starting it again would not help."""
EXIT_LAYER_MISSING = 79
"""Exit code of a zygote without a required layer of the sandbox: starting it again would not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZygoteSettings:
    """Settings of a zygote and of its workers."""

    function_modules: Sequence[str] = ()
    """Modules to import, which register functions."""
    files_directory: str = "/nonexistent"
    """Empty directory that replaces Spark's directory of distributed files."""
    workers_directory: str = "/nonexistent"
    """Directory where a zygote records its workers for the next zygote."""
    scratch_directory: str = "/nonexistent"
    """Directory where each worker has its own directory until the worker ends."""
    worker: WorkerSettings = WorkerSettings()  # noqa: RUF009
    restricted: bool = False
    """Whether functions have neither network nor subprocesses."""
    shared_memory: str = "own"
    """The /dev/shm that workers use, as in the setting --shared-memory: own, pool or machine."""
    required_layers: Sequence[str] = dataclasses.field(default_factory=list)
    """Layers of the sandbox without which the zygote does not start."""
    model_memory_bytes: int = 0
    """Memory that all model processes may hold together; 0 sets no limit."""
    generation: int = 0
    """Number of earlier reloads of the functions."""
    is_successor: bool = False
    """Whether the zygote takes over from a zygote that is still alive."""
    broken_loads: Sequence[tuple[Load, str]] = dataclasses.field(default_factory=list)
    """Loads that the zygote skips, with the reasons to give to callers of the functions."""

    def encode(self) -> str:
        """Return the settings as JSON, for the zygote's environment."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> "ZygoteSettings":
        """Return the settings in `text`."""
        fields = json.loads(text)
        # JSON has no tuples.
        broken_loads = [(Load(**load), fault) for load, fault in fields["broken_loads"]]
        worker: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields["worker"].items()}
        return cls(**{**fields, "broken_loads": broken_loads, "worker": WorkerSettings(**worker)})


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """First packet of the zygote, which describes its workers."""

    pid: int
    """Process id of the zygote on its own side: for people to read, never to act on."""
    python_version: str
    pyspark_version: str
    functions: Sequence[str]
    """Registered functions, as `encode_functions` writes them. Functions that do not fit follow in MoreFunctions."""
    sandbox: Sequence[Sequence[str]] = dataclasses.field(default_factory=list)
    """Fields of `SandboxLayer` for each layer."""
    memory_limit_bytes: int = 0
    """Memory of the container or machine that the zygote and all workers share."""
    more: int = 0
    """Number of functions that follow in MoreFunctions."""
    generation: int = 0
    """Generation from ZygoteSettings: workers of another generation have loaded other code."""


@dataclasses.dataclass(frozen=True, slots=True)
class MoreFunctions:
    """Functions that did not fit into Hello."""

    functions: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Claim of the front on workers of an earlier zygote. The zygote sends Exited for each worker that has ended."""

    workers: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Fork:
    """Request of the front for one worker."""

    request: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forked:
    """Answer to Fork with a new worker; the packet carries FORKED_DESCRIPTORS descriptors."""

    request: int
    worker: str
    """Id of the worker, unique among the workers of this zygote and of all later ones."""
    pid: int
    """Process id on the zygote's side: for people to read, never to act on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForkFailed:
    """Answer to Fork if no worker could be forked."""

    request: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """Request of the front to end a worker now; Exited follows."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """Request of the front to stop a worker that has no exchange, until Continue. The zygote does not answer."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Continue:
    """Request of the front to continue a worker, or notice that the front has continued it. No answer follows."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShowStack:
    """Request of the front that a worker write its stacks to its pipe (STACK_SIGNAL). The zygote does not answer."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """Request of the front to remove unused files from the pool's own /dev/shm, after an owner's last exchange."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """Request of the front for the usage of workers, at most MAX_WORKERS_PER_PACKET of them."""

    request: int
    workers: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """Answer to Measure; ended workers are left out."""

    request: int
    usage: Mapping[str, tuple[Any, ...]]
    """Fields of `WorkerUsage` by worker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exited:
    """End of a worker."""

    worker: str
    status: int | None
    """Exit code, or the negative number of the signal that ended the worker; None if an earlier zygote forked it."""


@dataclasses.dataclass(frozen=True, slots=True)
class WentOn:
    """Notice that something other than the front has continued a stopped worker. The zygote has stopped it again."""

    worker: str


@dataclasses.dataclass(frozen=True, slots=True)
class Retired:
    """Notice that the zygote forks no more workers and leaves its workers to a successor.

    The front connects to the successor next. The retired zygote keeps reporting on its model processes as long as it
    has workers that may use them.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class ReloadRefused:
    """Notice that the supervisor refused a reload. The code that this zygote has loaded stays in use."""

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
    | WentOn
    | Retired
    | ReloadRefused
    | model_packets.LimitModels
    | model_packets.ModelStarted
    | model_packets.ModelEnded
    | model_packets.ModelFault
    | model_packets.MeasureModels
    | model_packets.MeasuredModels
)

_CODEC: PacketCodec[Packet] = PacketCodec(*get_args(Packet))
encode, decode = _CODEC.encode, _CODEC.decode
