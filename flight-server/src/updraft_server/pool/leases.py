# SPDX-License-Identifier: Apache-2.0
"""Types of a pool's interface: owners, tasks, leases and their outcomes. `updraft_server.pool.pool` implements it."""

import asyncio
import dataclasses
import enum
import socket
from typing import NamedTuple, Protocol

from updraft_server.ipc.model_packets import LimitModels
from updraft_server.pool.worker_events import LogContext, WorkerDeath
from updraft_server.pool.zygote_source import ZygoteSource


class PoolError(Exception):
    """Raised when the pool cannot start or cannot provide a worker; the message says why."""


class NoIdleWorker(PoolError):  # noqa: N818 - a state of the pool that callers wait out
    """Raised by `Pool.lease` when the caller has to wait for a worker."""


class Owner(NamedTuple):
    """Owner of the code and data that an exchange brings."""

    tenant: str
    """Tenant used for fair scheduling."""
    application_id: str
    """Spark's application id; empty for other clients."""
    session_id: str
    """Spark Connect session; empty in a classic application."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskKey:
    """Spark task on whose behalf an exchange runs."""

    application_id: str
    stage_id: int
    task_attempt_id: int
    tenant: str = ""
    """Tenant of the task. An exchange of another tenant does not belong to this task, even if its ids are the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Living worker."""

    worker: str
    """Id of the worker."""
    pid: int
    """Process id on the workers' side: for people to read, never to act on."""
    state: str
    memory_bytes: int | None
    """Memory of all processes of the worker at the last measurement; None before the first measurement."""
    scratch_bytes: int | None = None
    """Size of the worker's temporary files at the last measurement; None before the first measurement."""


class LeaseOutcome(enum.Enum):
    """State in which an exchange left its worker."""

    CLEAN = "clean"  # after DONE: the worker is reused
    RETIRED = "retired"  # after RETIRED
    BROKEN = "broken"  # after FAILED, a protocol error, or anything unexpected
    CANCELLED = "cancelled"  # client gone, deadline or time limit passed


@dataclasses.dataclass(frozen=True, slots=True)
class PoolSettings:
    """Front's settings for its pool; the workers' own settings travel with the zygote (`ZygoteSettings`)."""

    workers: int
    zygotes: ZygoteSource
    start_timeout_seconds: float = 60.0
    fork_timeout_seconds: float = 10.0
    """Longest time until a new worker is ready."""
    fresh_workers: int = 0
    """Unused workers beyond `workers`, for a new owner if all idle workers belong to other owners."""
    workers_per_task: int = 8
    extra_workers: int | None = None
    """Workers beyond `workers` for tasks that need several; None means as many as all tasks together may need."""
    idle_seconds: float = 600.0
    """Time for which a session's worker, or an extra worker of an ended task, is kept for the next exchange."""
    output_lines_per_second: float = 100.0
    """Lines per second that a worker may print for one exchange, in the long run. A burst may be twice as large."""
    model_limits: LimitModels | None = None
    """Limits of each model process other than memory; None sets no limit."""

    @property
    def most_extra_workers(self) -> int:
        """Number of extra workers that `extra_workers` allows."""
        return self.workers * (self.workers_per_task - 1) if self.extra_workers is None else self.extra_workers


class Lease(Protocol):
    """Worker held by one exchange. Every lease ends with exactly one effective `release`."""

    worker: str
    """Id that the zygote gave the worker."""
    socket: socket.socket
    death: asyncio.Future[WorkerDeath]
    log_context: LogContext

    def count_for(self, tenant: str) -> None:
        """Count the worker for this tenant, including the time between this exchange and the worker's next one."""

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back. CLEAN allows reuse; any other outcome kills the worker. Idempotent, never blocks."""
