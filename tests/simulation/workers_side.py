# SPDX-License-Identifier: Apache-2.0
"""Simulated workers' side of a pod: a zygote that forks, and worker processes that work, hang and die.

The real `Pool` and `PooledWorker` use this side. Their sockets are numbers of the virtual loop, and `SimulatedZygote`
replaces `ZygoteClient`, which contains transport only.
"""

from __future__ import annotations

import asyncio
import signal
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from tests.simulation.token_file import TokenFile
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import World
from updraft.service import security
from updraft_server.ipc import zygote_packets as packets
from updraft_server.ipc.frames import FrameKind, encode_header
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool import pool as pool_module
from updraft_server.pool import worker as worker_module
from updraft_server.pool.models import PooledModels
from updraft_server.pool.zygote_client import ForkedWorker, ZygoteError, ZygoteLostError

_READY = encode_header(FrameKind.READY)
_RECONNECT_SECONDS = 0.05


class WorkerGone(Exception):  # noqa: N818 - an event of the simulation
    """Raised when a worker ends while an exchange waits for it."""


class WorkerProcess:
    """Worker process: it becomes ready after a while, works on one batch at a time, and dies once."""

    def __init__(self, world: World, name: str, on_exit: Callable[[WorkerProcess, int], None]) -> None:
        self.world = world
        self.name = name
        self.descriptor = world.loop.new_descriptor()
        self.incoming = b""
        self.is_alive = True
        self.is_stuck = False
        self.has_work_left = False
        """Whether an exchange has begun and has not succeeded."""
        self.owner: object = None
        """Owner of the first session that this process served."""
        self.on_gone: Callable[[], None] = lambda: None
        """Callback that tells the exchange of this worker that the worker has ended."""
        self._on_exit = on_exit
        self._work: asyncio.Future[None] | None = None

    def becomes_ready(self) -> None:
        """Send READY."""
        if self.is_alive:
            self.incoming = _READY
            self.world.loop.set_readable(self.descriptor)

    def die(self, status: int) -> None:
        """End the process as the kernel does: its socket reports the end, and the zygote reaps the process."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.world.loop.set_readable(self.descriptor)
        if self._work is not None and not self._work.done():
            self._work.set_exception(WorkerGone())
            self._work.exception()
        self.on_gone()
        self._on_exit(self, status)

    async def work(self, seconds: float) -> None:
        """Work on a batch; raises WorkerGone. A process that is stuck never ends by itself."""
        if not self.is_alive:
            raise WorkerGone
        done = self._work = self.world.loop.create_future()
        if not self.is_stuck:
            self.world.later(seconds, self._done)
        await done

    def _done(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)


class _Socket:
    """Front's end of a worker's socket."""

    def __init__(self, fileno: int) -> None:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        self.process: WorkerProcess = loop.processes[fileno]
        self._descriptor = fileno
        self._loop = loop

    def setblocking(self, _blocks: object) -> None:
        pass

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        process = self.process
        data, process.incoming = process.incoming[:size], process.incoming[size:]
        if data:
            self._loop.set_readable(process.descriptor, is_readable=not process.is_alive)
        elif process.is_alive:
            raise BlockingIOError
        return data

    def close(self) -> None:
        """Close the socket, so that a living worker ends by itself."""
        if self._descriptor >= 0:
            self._descriptor = -1
            self._loop.call_later(0.001, self.process.die, 0)


class _NoOutput:
    """Output of a worker that prints no lines."""

    crash = types.SimpleNamespace(text="")

    def __init__(self, *_arguments: object) -> None:
        pass

    def next_exchange(self) -> None:
        pass

    def close(self) -> None:
        pass


async def _measure_nothing(_models: object, _measure: object) -> None:
    """Replace measurements of model processes, because the simulation has no model processes."""


class WorkersSide:
    """Zygotes and workers of one pod. If a zygote dies, its workers live on under the next zygote."""

    def __init__(self, world: World, pod: str, *, fork_seconds: float, ready_seconds: float) -> None:
        self.world = world
        self.pod = pod
        self.fork_seconds = fork_seconds
        self.ready_seconds = ready_seconds
        self.refuses_forks = False
        """Whether forks fail, as on a machine without free memory."""
        self.processes: dict[str, WorkerProcess] = {}
        self.client: SimulatedZygote | None = None
        self.is_up = True
        self.zygotes = 1
        self._forked = 0

    def fork(self) -> WorkerProcess:
        """Start a worker."""
        self._forked += 1
        process = WorkerProcess(self.world, f"{self.pod}-z{self.zygotes}-w{self._forked}", self._reaped)
        self.world.loop.processes[process.descriptor] = process
        self.processes[process.name] = process
        self.world.later(self.world.seconds(self.ready_seconds), process.becomes_ready)
        return process

    def _reaped(self, process: WorkerProcess, status: int) -> None:
        self.processes.pop(process.name, None)
        self.world.later(self.world.seconds(0.002), lambda: self._tell_exit(process.name, status))

    def _tell_exit(self, name: str, status: int | None) -> None:
        if self.client is not None and self.client.hello is not None:
            self.client.on_exit(packets.Exited(name, status))

    def take(self, packet: object) -> None:
        """Act on a packet from the front."""
        match packet:
            case packets.Kill(name):
                if (process := self.processes.get(name)) is not None:
                    self.world.later(self.world.seconds(0.002), lambda: process.die(-signal.SIGKILL))
            case packets.Claim(names):
                for name in names:
                    if name not in self.processes:
                        self.world.later(0.001, partial(self._tell_exit, name, None))

    def crash_zygote(self, seconds: float) -> None:
        """End the zygote; the next zygote starts after this time."""
        self.is_up = False
        self.zygotes += 1
        if self.client is not None:
            self.client.lose()
        self.world.later(seconds, self._is_back)

    def _is_back(self) -> None:
        self.is_up = True

    def crash(self) -> None:
        """End the zygote and all workers at once."""
        self.is_up = False
        self.client = None
        for process in list(self.processes.values()):
            process.die(-signal.SIGKILL)


class SimulatedZygote:
    """`ZygoteClient` without a socket."""

    def __init__(
        self,
        zygotes: Any,
        on_exit: Callable[[packets.Exited], None],
        on_lost: Callable[[], None],
        _on_model: object,
        _on_retirement: object,
        _on_refusal: object,
        _on_going_on: object,
    ) -> None:
        self.hello: packets.Hello | None = None
        self.functions: Sequence[Any] = ()
        self.reload_fault = ""
        self.refused_reloads = 0
        self.trouble = ""
        self.seconds_since_loading = 0.0
        self.on_exit = on_exit
        self._side: WorkersSide = zygotes
        self._side.client = self
        self._on_lost = on_lost
        self._forks: dict[asyncio.Future[ForkedWorker], None] = {}

    async def connect(self) -> packets.Hello:
        while self.hello is None:
            await asyncio.sleep(_RECONNECT_SECONDS)
            if self._side.is_up:
                self.hello = packets.Hello(1, "3.11", "4.3.0", ())
        return self.hello

    async def fork(self) -> ForkedWorker:
        if self.hello is None:
            raise ZygoteLostError
        side = self._side
        answer: asyncio.Future[ForkedWorker] = asyncio.get_running_loop().create_future()
        self._forks[answer] = None
        side.world.later(side.world.seconds(side.fork_seconds), lambda: self._answer(answer))
        try:
            return await answer
        finally:
            self._forks.pop(answer, None)

    def _answer(self, answer: asyncio.Future[ForkedWorker]) -> None:
        if answer.done():
            return
        if self._side.refuses_forks:
            answer.set_exception(ZygoteError("cannot fork: no memory"))
            return
        process = self._side.fork()
        answer.set_result(ForkedWorker(process.name, 1, process.descriptor, 0, 0, -1))

    def claim(self, workers: Sequence[str]) -> None:
        self.send(packets.Claim(workers))

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        return {}

    async def measure_models(self) -> Sequence[Any]:
        return ()

    def send(self, packet: object) -> None:
        if self.hello is not None:
            self._side.take(packet)

    def close(self) -> None:
        self.hello = None
        for answer in list(self._forks):
            if not answer.done():
                answer.set_exception(ZygoteLostError())

    def lose(self) -> None:
        """Lose the connection, as after the death of the zygote."""
        if self.hello is not None:
            self.close()
            self._on_lost()


@contextmanager
def simulated_processes() -> Iterator[None]:
    """Let the product see simulated sockets, zygotes and token files in this block."""
    replaced: Sequence[tuple[Any, str, Any]] = (
        (worker_module, "socket", types.SimpleNamespace(socket=_Socket)),
        (worker_module, "OutputReader", _NoOutput),
        (worker_module, "StackReader", _NoOutput),
        (pool_module, "ZygoteClient", SimulatedZygote),
        (PooledModels, "keep_measuring", _measure_nothing),
        (security, "_read_file", TokenFile.read),
    )
    before = [getattr(module, name) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(replaced, before, strict=True):
            setattr(module, name, value)
