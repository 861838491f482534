# SPDX-License-Identifier: Apache-2.0
"""The pool as the front sees it: workers that are leased to exchanges, one each, and healed by the zygote.

`updraft_server.admission` queues in front of it; `updraft_server.zygote` forks what it asks for.
"""

import asyncio
import dataclasses
import enum
import socket
from collections.abc import Callable, Sequence
from pathlib import Path


class PoolError(Exception):
    """Raised when the pool cannot start or cannot get a worker; the message says why."""


class NoIdleWorker(PoolError):
    """Raised by `Pool.lease` when the caller has to wait for a worker."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskKey:
    """The Spark task on whose behalf an exchange runs."""

    application_id: str
    stage_id: int
    task_attempt_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredFunctionInfo:
    """A function that is deployed with the pool."""

    name: str
    version: str
    doc: str


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerDeath:
    """How a worker process ended; both are None when nobody could say."""

    exit_code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        """In words: "was killed by SIGSEGV", "exited with code 3"."""
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOutput:
    """A line that a worker printed or logged."""

    pid: int
    line: str
    context: dict[str, str]
    """`Lease.log_context` of the exchange that the worker held when the line was read; empty when it held none."""


class LeaseOutcome(enum.Enum):
    """How an exchange left its worker."""

    CLEAN = "clean"  # after DONE: the worker is reused
    RETIRED = "retired"  # after RETIRED
    BROKEN = "broken"  # after FAILED, a protocol error, or anything unexpected
    CANCELLED = "cancelled"  # client gone, deadline or time limit passed


@dataclasses.dataclass(frozen=True, slots=True)
class PoolSettings:
    """What the front decides about its pool; what the workers obey travels with the zygote (`ZygoteSettings`)."""

    workers: int
    zygote_socket: Path
    start_timeout_seconds: float = 60.0
    fork_timeout_seconds: float = 10.0
    """How long a lease may wait for an extra worker."""
    workers_per_task: int = 8


class Lease:
    """A worker held by one exchange. Every lease ends with exactly one effective `release`."""

    pid: int
    socket: socket.socket
    death: asyncio.Future[WorkerDeath]
    log_context: dict[str, str]

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back: CLEAN for reuse, anything else kills and replaces it. Idempotent, never blocks."""
        raise NotImplementedError


class Pool:
    """The workers of one environment, as one front holds them. Used from one event loop."""

    def __init__(self, settings: PoolSettings, on_output: Callable[[WorkerOutput], None] | None = None) -> None:
        self.idle = 0
        self.busy = 0
        self.starting = 0
        self.functions: Sequence[RegisteredFunctionInfo] = ()
        self.python_version = ""
        self.pyspark_version = ""
        raise NotImplementedError

    async def start(self) -> None:
        """Return when all workers are warm; raises PoolError when the zygote cannot start them."""

    async def lease(self, task: TaskKey | None) -> Lease:
        """An idle worker at once, or an extra one for a task that holds one already; raises NoIdleWorker, PoolError."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of idle, busy or starting; returns what ends the subscription."""
        raise NotImplementedError

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, wait for leases to end, then kill what is left."""
