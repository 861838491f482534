# SPDX-License-Identifier: Apache-2.0
"""Pool without processes, for tests of everything in front of the workers.

`FakePool` is a `WorkerPool` whose workers are coroutines at the other end of real socketpairs: they send and receive
the same frames as workers, and a test can make them misbehave in every way that a process can.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.frame_stream import Frame, FrameReceiver, FrameSender
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import (
    Lease,
    LeaseOutcome,
    NoIdleWorker,
    TaskKey,
    WorkerInfo,
)
from updraft_server.pool.resting import RestingWorkers
from updraft_server.pool.worker import EXIT_REASONS
from updraft_server.pool.worker_events import LogContext, WorkerDeath
from updraft_server.sandbox_layers import SandboxLayer

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024


class FakeWorker:
    """Worker's end of a lease, driven by a script."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sender = FrameSender(end)
        self._receiver = FrameReceiver(end, max_payload_bytes=2**31)
        self.send = self._sender.send

    async def receive(self) -> Frame:
        """Return the next frame from the front."""
        return await self._receiver.receive()

    def close(self) -> None:
        """Close the socket, as a process does by dying."""
        self._end.close()


Script = Callable[[FakeWorker], Awaitable[None]]


async def echo(worker: FakeWorker) -> None:
    """Send every batch back, byte for byte."""
    command = await worker.receive()
    await worker.send(FrameKind.MESSAGE, b"", bytes(command.data_header))
    while (frame := await worker.receive()).kind is FrameKind.BATCH:
        await worker.send(FrameKind.MESSAGE, frame.app_metadata, frame.data_header, frame.data_body)
    await worker.send(FrameKind.DONE)


class FakeLease(Lease):
    """Lease whose worker is a running script."""

    def __init__(
        self,
        worker: str,
        script: Script,
        task: TaskKey | None,
        on_release: Callable[[], None],
        binding: Binding = REGISTERED,
    ) -> None:
        front_end, worker_end = socket.socketpair()
        for end in (front_end, worker_end):
            end.settimeout(0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self.worker = worker
        self.task = task
        self.binding = binding
        self.socket = front_end
        self.death = asyncio.get_running_loop().create_future()
        self.log_context = LogContext()
        self.outcome: LeaseOutcome | None = None
        self.process = FakeWorker(worker_end)
        self._on_release = on_release
        self._running = asyncio.ensure_future(script(self.process))

    def die(self, death: WorkerDeath) -> None:
        """End the worker as SIGKILL would."""
        self._running.cancel()
        self.process.close()
        if not self.death.done():
            self.death.set_result(death)

    def count_for(self, tenant: str) -> None:
        """Do nothing: no worker of this pool rests."""

    def release(self, outcome: LeaseOutcome) -> None:
        """Record the outcome; only the first counts."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self._running.cancel()
        self.socket.close()
        self.process.close()
        self._on_release()


class FakePool:
    """Pool of `workers` scripts; `leases` has every lease that was given."""

    def __init__(self, workers: int = 1, script: Script = echo) -> None:
        self.script = script
        self.stopped: list[Any] = []
        self.replaced: list[tuple[str, str]] = []
        """Workers that were ended between exchanges, with the reasons."""
        self.usage: Callable[[], WorkerUsage] = lambda: WorkerUsage(0, "")
        self.leases: list[FakeLease] = []
        self.idle = workers
        self.busy = 0
        self.starting = 0
        self.fresh = 0
        self.functions: Sequence[FunctionDescription] = (
            FunctionDescription(name="echo", version="1", doc="Sends it back."),
        )
        self.unlisted: Sequence[FunctionDescription] = ()
        self.generation = 0
        self.reload_fault = ""
        self.refused_reloads = 0
        self.python_version = "3.11"
        self.memory_limit_bytes = 1 << 40
        self.zygote_pid = 0
        self.sandbox: Sequence[SandboxLayer] = (SandboxLayer("seccomp"), SandboxLayer("capabilities", "it is a test"))
        self.exits = dict.fromkeys(EXIT_REASONS, 0)
        self.resting: RestingWorkers[Any] = RestingWorkers(
            stop=self.stopped.append,
            go_on=self.stopped.remove,
            replace=lambda worker, reason: self.replaced.append((worker.id, reason)),
            expire=lambda worker: self.replaced.append((worker.id, "expired")),
            is_kept=lambda _: True,
            idle_seconds=0.0,
            clock=lambda: 0.0,
        )
        self.pyspark_version = "4.3.0"
        self.model_usage: Sequence[ModelUsage] = ()
        self.model_faults: Mapping[tuple[str, str], str] = {}
        self._subscribers: list[Callable[[], None]] = []

    @property
    def quiet(self) -> int:
        """Number of idle workers that do not compute; computing workers are counted as idle too."""
        return max(0, self.idle - self.resting.computing)

    @property
    def computing(self) -> int:
        """Number of workers with an exchange, plus those that compute without one."""
        return self.busy + self.resting.computing

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        """Workers whose leases are still held."""
        return tuple(WorkerInfo(lease.worker, 0, "busy", None, self.usage().scratch_bytes) for lease in self._held)

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return `usage` for each worker."""
        return {worker: self.usage() for worker in workers}

    async def stack(self, worker: str) -> str | None:
        """Return a made-up stack, or None for a worker without a lease."""
        return f"the stack of {worker}" if worker in {lease.worker for lease in self._held} else None

    async def start(self) -> None:
        """Do nothing: all workers are there."""

    async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
        """Return a lease of an idle worker, or of an extra one for a task that holds one."""
        is_extra = task is not None and any(held.task == task for held in self._held)
        if self.idle == 0 and not is_extra:
            raise NoIdleWorker("all workers are busy")
        taken = min(self.idle, 1)
        lease = FakeLease(f"fake-{len(self.leases) + 1}", self.script, task, lambda: self._count(taken), binding)
        self.leases.append(lease)
        self._count(-taken)
        return lease

    async def lease_idle(self, binding: Binding) -> Lease:
        """Return a lease of an idle worker."""
        return await self.lease(None, binding)

    async def lease_extra(self, task: TaskKey | None, binding: Binding = REGISTERED) -> Lease:
        """Return a lease of a worker beyond `workers`."""
        lease = FakeLease(f"fake-{len(self.leases) + 1}", self.script, task, lambda: self._count(0), binding)
        self.leases.append(lease)
        self._count(0)
        return lease

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def close(self, grace_seconds: float) -> None:
        """Release all leases, each as broken."""
        for lease in self.leases:
            lease.release(LeaseOutcome.BROKEN)

    def changed(self) -> None:
        """Notify the subscribers; for tests that set `idle` themselves."""
        for subscriber in list(self._subscribers):
            subscriber()

    @property
    def _held(self) -> list[FakeLease]:
        return [lease for lease in self.leases if lease.outcome is None]

    def _count(self, more_idle: int) -> None:
        self.idle += more_idle
        self.busy = len(self._held)
        self.changed()
