# SPDX-License-Identifier: Apache-2.0
"""Workers between two exchanges: stopped once they are quiet, ended if they stay busy or idle for too long.

A thread that a function leaves behind would escape every time limit, fair scheduling and the audit. So the pool stops
workers between exchanges: a stopped worker uses no CPU, and the pool continues it for its next exchange. If a worker
has ever used CPU between exchanges, the pool stops it right after each later exchange, because the time between two
exchanges may be too short to notice that the worker computes. If a tenant has a cap on workers, the cap applies to its
running exchanges together with its resting workers that are not stopped. This module holds only policy; its caller
provides the clock. The front measures workers (`updraft_server.front.limits`), and the zygote stops and continues them.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from updraft_server.ipc.worker_usage import WorkerUsage

# A worker is quiet if it uses at most this much CPU time between two measurements, or in total while it is stopped.
# Threads that are ending, and timers, use less.
_QUIET_SECONDS = 0.05
# A worker is ended after more than this many consecutive measurements that find use of CPU. Fewer measurements prove
# nothing, because libraries that compute with several threads let idle threads spin for some 0.2 seconds.
_MOST_BUSY_MEASUREMENTS = 4
# Number of measurements of a stopped worker before it is considered at rest. One measurement is too few, because the
# pool measures a scratch directory only about once a second.
_MEASUREMENTS_WHEN_STOPPED = 8


class _Worker(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def usage(self) -> WorkerUsage | None: ...

    @property
    def tenant(self) -> str: ...

    computes_at_rest: bool


Worker = TypeVar("Worker", bound=_Worker)


class Phase(enum.Enum):
    """Phases of a rest: AWAKE -> STOPPED -> AT_REST; AWAKE again whenever the worker is continued."""

    AWAKE = "awake"  # may compute: measured each time, and stopped once it is quiet
    STOPPED = "stopped"  # measured for a while longer
    AT_REST = "at rest"  # measured as rarely as the whole pool is


@dataclass(slots=True)
class _Rest(Generic[Worker]):
    worker: Worker
    since_seconds: float
    phase: Phase = Phase.AWAKE
    measurements: int = 0
    """Number of measurements in this phase."""
    busy_measurements: int = 0
    """Number of consecutive measurements that found use of CPU."""
    processor_seconds: float = 0.0
    """CPU time at the previous measurement; for a stopped worker, at its first measurement in this phase."""

    def enter(self, phase: Phase) -> None:
        self.phase, self.measurements, self.busy_measurements = phase, 0, 0


class RestingWorkers(Generic[Worker]):
    """Workers of a pool that have served an exchange and wait for another exchange."""

    def __init__(
        self,
        *,
        stop: Callable[[Worker], None],
        go_on: Callable[[Worker], None],
        replace: Callable[[Worker, str], None],
        expire: Callable[[Worker], None],
        is_kept: Callable[[Worker], bool],
        idle_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """Prepare to track resting workers.

        Args:
            stop: Stops a worker, which then uses no CPU.
            go_on: Continues a stopped worker.
            replace: Ends a worker because of what its exchanges have left behind; the text describes what.
            expire: Ends a worker that has been idle for too long.
            is_kept: Returns whether a worker stays, however long it is idle.
            idle_seconds: Time after which a worker ends unless `is_kept` returns True.
            clock: Returns the machine's time in seconds.
        """
        self._stop = stop
        self._go_on = go_on
        self._replace = replace
        self._expire = expire
        self._is_kept = is_kept
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._rests: dict[str, _Rest[Worker]] = {}

    @property
    def unsettled(self) -> Sequence[str]:
        """Workers that are not at rest, which the pool keeps measuring."""
        return [name for name, rest in self._rests.items() if rest.phase is not Phase.AT_REST]

    @property
    def since(self) -> Mapping[str, float]:
        """Time at which each worker began to wait, in seconds of the clock."""
        return {name: rest.since_seconds for name, rest in self._rests.items()}

    @property
    def usage(self) -> Mapping[str, WorkerUsage]:
        """Last measurement of each worker that has been measured."""
        return {name: rest.worker.usage for name, rest in self._rests.items() if rest.worker.usage is not None}

    @property
    def sessions(self) -> Sequence[str]:
        """Workers that end after some idle time (`is_kept` is false), in the order of their last exchanges."""
        return [name for name, rest in self._rests.items() if not self._is_kept(rest.worker)]

    @property
    def computing(self) -> int:
        """Number of workers that used CPU at the last measurement."""
        return sum(rest.busy_measurements > 0 for rest in self._rests.values())

    def is_computing(self, worker: str) -> bool:
        """Return whether a worker between exchanges used CPU at the last measurement."""
        rest = self._rests.get(worker)
        return rest is not None and rest.busy_measurements > 0

    def state(self, worker: str) -> str | None:
        """Return `busy` or `stopped` for a worker between exchanges; None for a worker that only waits."""
        rest = self._rests.get(worker)
        if rest is None:
            return None
        if rest.busy_measurements:
            return "busy"
        return None if rest.phase is Phase.AWAKE else "stopped"

    def begin(self, worker: Worker) -> bool:
        """Track a worker whose exchange has ended; returns False if the caller should end the worker instead."""
        if self._idle_seconds <= 0 and not self._is_kept(worker):
            return False
        rest = self._rests[worker.id] = _Rest(worker, self._clock())
        if worker.computes_at_rest:
            self._stop_now(rest)
        return True

    def end(self, worker: Worker) -> None:
        """Continue a worker for an exchange, and stop tracking the worker."""
        self.wake(worker)
        self.forget(worker)

    def forget(self, worker: Worker) -> None:
        """Forget a worker that is gone or about to be killed, without continuing it. Idempotent."""
        self._rests.pop(worker.id, None)

    def wake(self, worker: Worker) -> None:
        """Continue a worker for a moment, for something other than an exchange."""
        rest = self._rests.get(worker.id)
        if rest is not None and rest.phase is not Phase.AWAKE:
            rest.enter(Phase.AWAKE)
            self._go_on(worker)

    def went_on(self, worker: str) -> None:
        """Measure a stopped worker often again, because something other than this front has continued it."""
        rest = self._rests.get(worker)
        if rest is not None and rest.phase is Phase.AT_REST:
            # Keep the CPU time of the first measurement, so that all CPU time since the worker was stopped is counted.
            rest.phase, rest.measurements = Phase.STOPPED, 1

    def stop_all_but(self, most: int, tenant: str) -> None:
        """Stop the workers of a tenant that are not stopped yet, except for the `most` that were used last."""
        awake = [rest for rest in self._rests.values() if rest.phase is Phase.AWAKE and rest.worker.tenant == tenant]
        for rest in awake[: len(awake) - max(0, most)]:
            self._stop_now(rest)

    def all_go_on(self) -> None:
        """Record that the zygote side has continued all workers."""
        for rest in self._rests.values():
            rest.enter(Phase.AWAKE)

    def end_expired(self) -> None:
        """End the workers that have been idle for too long."""
        latest_seconds = self._clock() - self._idle_seconds
        for rest in [rest for rest in self._rests.values() if rest.since_seconds <= latest_seconds]:
            if not self._is_kept(rest.worker):
                self.forget(rest.worker)
                self._expire(rest.worker)

    def measured(self, usage: Mapping[str, WorkerUsage], excess: Callable[[WorkerUsage], str]) -> None:
        """Stop or end workers after a measurement; `excess` returns which limit a worker exceeds, or an empty text."""
        for name in usage.keys() & self._rests.keys():
            rest, used = self._rests[name], usage[name]
            reason = excess(used) or _unrest(rest, used)
            if reason:
                self.replace(name, reason)
            else:
                self._measured(rest)

    def replace(self, worker: str, reason: str) -> None:
        """End a worker between exchanges because of what it uses, which `reason` describes."""
        self._replace(self._rests.pop(worker).worker, reason)

    def _measured(self, rest: _Rest[Worker]) -> None:
        rest.measurements += 1
        if rest.phase is Phase.AWAKE and rest.measurements > 1 and not rest.busy_measurements:
            self._stop_now(rest)
        elif rest.phase is Phase.STOPPED and rest.measurements >= _MEASUREMENTS_WHEN_STOPPED:
            rest.enter(Phase.AT_REST)

    def _stop_now(self, rest: _Rest[Worker]) -> None:
        rest.enter(Phase.STOPPED)
        self._stop(rest.worker)


def _unrest(rest: _Rest[Worker], used: WorkerUsage) -> str:
    """Return why a worker is unfit for another exchange, or an empty text; also records its CPU time."""
    if used.processes > 1:
        return f"it runs {used.processes} processes"
    seconds = used.processor_seconds - rest.processor_seconds
    if rest.phase is Phase.AWAKE:
        rest.busy_measurements = rest.busy_measurements + 1 if rest.measurements and seconds > _QUIET_SECONDS else 0
        rest.processor_seconds = used.processor_seconds
        rest.worker.computes_at_rest |= rest.busy_measurements > 0
        return "it computes" if rest.busy_measurements > _MOST_BUSY_MEASUREMENTS else ""
    if rest.phase is Phase.STOPPED and not rest.measurements:
        rest.processor_seconds = used.processor_seconds
        return ""
    return f"it used {seconds:.2f} seconds of CPU time while it was stopped" if seconds > _QUIET_SECONDS else ""
