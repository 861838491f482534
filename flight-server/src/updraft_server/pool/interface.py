# SPDX-License-Identifier: Apache-2.0
"""A pool as the front uses it. `updraft_server.pool.pool` is one, `updraft_server.pool.testing` another for tests."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, TaskKey, WorkerInfo
from updraft_server.pool.resting import RestingWorkers
from updraft_server.sandbox_layers import SandboxLayer


class WorkerPool(Protocol):
    """Workers that are leased to one exchange each. Used from one event loop."""

    idle: int
    busy: int
    """Workers that an exchange holds."""
    starting: int
    """Workers that will be idle or have an exchange that waits for them."""
    fresh: int
    """Workers that have served nobody, beyond the configured number: not counted in any of the above."""
    functions: Sequence[FunctionDescription]
    """Empty, as are the versions, until the zygote has told."""
    unlisted: Sequence[FunctionDescription]
    """Those that can be called and are shown to nobody."""
    generation: int
    """Of the functions that new workers have; another one when they were loaded again."""
    python_version: str
    pyspark_version: str
    memory_limit_bytes: int
    """Memory of the workers' container or machine; 0 until the zygote has told."""
    zygote_pid: int
    """On the workers' side: for people to read, never to act on."""
    sandbox: Sequence[SandboxLayer]
    """Layers of the workers' sandbox; empty until the zygote has told."""
    exits: dict[str, int]
    """Workers that ended, by what ended them."""
    resting: RestingWorkers[Any]
    """Workers between two exchanges; it judges each measurement."""

    @property
    def reload_fault(self) -> str:
        """Why the pool refused the last reload, while the older functions serve on; empty otherwise."""

    @property
    def model_usage(self) -> Sequence[ModelUsage]:
        """What the processes of each batched function were and had done when they were last measured. May be read from
        any thread."""

    @property
    def model_faults(self) -> Mapping[tuple[str, str], str]:
        """Why batched functions cannot be called now, by name and version; of those that can, nothing."""

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        """The workers that live. May be read from any thread."""

    async def start(self) -> None:
        """Return when all workers are warm; raises PoolError."""

    async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
        """A worker at once; raises NoIdleWorker when the caller has to wait for one, and PoolError."""

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """What each of these workers uses now; nothing of one that cannot be measured."""

    async def stack(self, worker: str) -> str | None:
        """Where the Python of a worker is, in each thread; empty when it does not answer, None when it has ended."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of idle, busy or starting; returns what ends the subscription."""

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, wait for leases to end, then kill what is left."""


async def until(pool: WorkerPool, condition: Callable[[], bool]) -> None:
    """Wait for a state of the pool, woken by its changes."""
    changed = asyncio.Event()
    unsubscribe = pool.subscribe(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        unsubscribe()
