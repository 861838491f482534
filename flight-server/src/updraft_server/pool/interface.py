# SPDX-License-Identifier: Apache-2.0
"""Pool as the front uses it: implemented in `updraft_server.pool.pool`, and in the tests' `fake_pool`."""

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
    """Workers that are starting, which will be idle or serve a waiting exchange."""
    fresh: int
    """Unused workers beyond the configured number; `idle`, `busy` and `starting` leave them out."""
    functions: Sequence[FunctionDescription]
    """Listed functions. All functions and versions are empty until the zygote has reported."""
    unlisted: Sequence[FunctionDescription]
    """Functions that can be called but are not listed."""
    generation: int
    """Generation of the functions that new workers have; it changes when the functions are loaded again."""
    python_version: str
    pyspark_version: str
    memory_limit_bytes: int
    """Memory of the workers' container or machine; 0 until the zygote has reported."""
    zygote_pid: int
    """Process id on the workers' side: for people to read, never to act on."""
    sandbox: Sequence[SandboxLayer]
    """Layers of the workers' sandbox; empty until the zygote has reported."""
    exits: dict[str, int]
    """Numbers of workers that ended, by cause."""
    resting: RestingWorkers[Any]
    """Workers between two exchanges. After each measurement, `resting` decides which workers to stop or end."""

    @property
    def quiet(self) -> int:
        """Number of the idle workers that use no CPU."""

    @property
    def computing(self) -> int:
        """Number of workers that use CPU, during an exchange or after it."""

    @property
    def reload_fault(self) -> str:
        """Why the pool refused the last reload and still runs the older functions; empty otherwise."""

    @property
    def refused_reloads(self) -> int:
        """Number of reloads that the pool has refused."""

    @property
    def model_usage(self) -> Sequence[ModelUsage]:
        """Last measurement of each batched function's processes. May be read from any thread."""

    @property
    def model_faults(self) -> Mapping[tuple[str, str], str]:
        """Why batched functions cannot be called now, by name and version; callable functions are left out."""

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        """Living workers. May be read from any thread."""

    async def start(self) -> None:
        """Return when all workers are warm; raises PoolError."""

    async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
        """Lease a worker at once; raises NoIdleWorker if the caller has to wait for a worker, and PoolError."""

    async def lease_idle(self, binding: Binding) -> Lease:
        """Lease an idle worker that serves no other owner; raises NoIdleWorker and PoolError."""

    async def lease_extra(self, task: TaskKey | None, binding: Binding = REGISTERED) -> Lease:
        """Lease a worker beyond the configured number; raises NoIdleWorker and PoolError."""

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return what each of these workers uses now; workers that cannot be measured are left out."""

    async def stack(self, worker: str) -> str | None:
        """Return the stacks of a worker's Python threads; empty if the worker does not answer, None if it has ended."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of idle, busy or starting, until the returned function is called."""

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, wait for leases to end, then kill the remaining workers."""


async def until(pool: WorkerPool, condition: Callable[[], bool]) -> None:
    """Wait until `condition` is true. Check it again after every change of the pool."""
    changed = asyncio.Event()
    unsubscribe = pool.subscribe(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        unsubscribe()
