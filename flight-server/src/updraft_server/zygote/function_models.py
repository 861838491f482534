# SPDX-License-Identifier: Apache-2.0
"""Model processes of one batched function, and the workers that wait for a connection to one of the processes.

This module also contains the policy that `models` carries out: which processes end to make room for another process,
and when a dead process is replaced.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.zygote.model_replica import Replica, ReplicaState

# A process that serves exchanges may keep its memory for at least this time after loading, so that two functions that
# compete for memory take turns.
RESIDENT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
# If a process dies after it has served for this long, its death is counted as a first death.
_FORGIVEN_SECONDS = 60.0


class Resident(NamedTuple):
    """Model process that has loaded its function."""

    model: str
    """Id of the process."""
    memory_bytes: int
    connections: int
    ready_seconds: float
    """Time when the process became ready."""
    last_used_seconds: float


def victims(residents: Sequence[Resident], excess_bytes: int, now_seconds: float) -> Sequence[str]:
    """Return the processes to end, so that at least `excess_bytes` become free, or as many bytes as possible.

    Processes without exchanges end first. Among equals, the least recently used process ends first.
    """
    free_to_go = [
        resident
        for resident in residents
        if not resident.connections or now_seconds >= resident.ready_seconds + RESIDENT_SECONDS
    ]
    free_to_go.sort(key=lambda resident: (resident.connections > 0, resident.last_used_seconds))
    chosen = []
    for resident in free_to_go:
        if excess_bytes <= 0:
            break
        chosen.append(resident.model)
        excess_bytes -= resident.memory_bytes
    return chosen


class Backoff:
    """Pauses between the starts of a function's processes: none after the first death, then longer with each death."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deaths = 0
        self._next_start_seconds = -math.inf

    @property
    def pause_seconds(self) -> float:
        """Time until a process may be started; 0 means now."""
        return max(0.0, self._next_start_seconds - self._clock())

    def died(self, ready_seconds: float | None) -> None:
        """Record the unexpected end of a process. `ready_seconds` is the time when it had loaded, or None."""
        now = self._clock()
        if ready_seconds is not None and now - ready_seconds >= _FORGIVEN_SECONDS:
            self._deaths = 0
        # A retry right after a failed load would probably fail too, so if a first death is a failed load, count it
        # twice.
        self._deaths += 1 if ready_seconds is not None or self._deaths else 2
        pause_seconds = _FIRST_PAUSE_SECONDS * 2 ** (self._deaths - 2) if self._deaths > 1 else 0.0
        self._next_start_seconds = now + min(pause_seconds, _LONGEST_PAUSE_SECONDS)


class FunctionModels:
    """Model processes, waiting workers and faults of one batched function; the module `models` changes this state."""

    def __init__(self, function: BatchedFunction, clock: Callable[[], float] = time.monotonic) -> None:
        self.function = function
        self._clock = clock
        self.replicas: dict[int, Replica] = {}
        """Living processes, by their numbers."""
        self.is_wanted = False
        """Whether the zygote starts missing processes even if no worker waits for a connection."""
        self.waiting: dict[str, float] = {}
        """Workers that wait for a connection, in order of arrival, with their arrival times."""
        self.backoff = Backoff(clock)
        self.fault = ""
        """Why the function cannot be called; empty if it can."""
        self.cannot_load = False
        """Whether the last process failed to load the function. A retry is then unlikely to succeed soon."""
        self.deaths_in_a_row = 0
        """Deaths of processes that had loaded the function, since a process last finished a batch."""
        self.alone_until_seconds = -math.inf
        """Until this time, rows that must not be repeated run alone instead of being joined with other rows."""
        self.loads = self.evictions = self.deaths = 0
        self.last_memory_bytes = 0
        """Last measured memory of a process that has loaded the function; 0 before the first measurement."""
        self._past = BatchRecord()
        """Batches of processes that have ended."""

    def wait(self, worker: str) -> None:
        """Add a worker that wants a connection."""
        self.waiting.setdefault(worker, self._clock())

    def serve(self, serve: Callable[[str], bool]) -> None:
        """Call `serve` for waiting workers until `serve` returns False. That worker and all later ones keep waiting."""
        for worker in list(self.waiting):
            if not serve(worker):
                return
            self.waiting.pop(worker, None)

    def wait_no_longer(self, worker: str) -> None:
        """Remove a worker that has ended."""
        self.waiting.pop(worker, None)

    @property
    def waiting_since_seconds(self) -> float:
        """Arrival time of the worker that has waited longest; infinite if no worker waits."""
        return next(iter(self.waiting.values()), math.inf)

    @property
    def missing(self) -> Sequence[int]:
        """Numbers of the processes to start."""
        if not (self.is_wanted or self.waiting):
            return ()
        return [number for number in range(self.function.batching.replicas) if number not in self.replicas]

    @property
    def ready(self) -> Sequence[Replica]:
        """Processes that accept connections. The process with the fewest connections comes first."""
        ready = [replica for replica in self.replicas.values() if replica.state is ReplicaState.READY]
        return sorted(ready, key=lambda replica: replica.connections)

    @property
    def is_loading(self) -> bool:
        """Whether a process is loading the function."""
        return any(replica.state is ReplicaState.LOADING for replica in self.replicas.values())

    def forget(self, replica: Replica) -> None:
        """Remove a process that has ended, and keep its batches in the record."""
        del self.replicas[replica.number]
        self._past.add(BatchRecord.from_plain(replica.told.record))

    def usage(self) -> ModelUsage:
        """Return the usage to report to a front."""
        record = BatchRecord()
        record.add(self._past)
        for replica in self.replicas.values():
            record.add(BatchRecord.from_plain(replica.told.record))
        living = [
            ModelReplica(
                replica.id,
                replica.number,
                replica.process.pid,
                replica.state.value,
                replica.memory_bytes,
                replica.connections,
            )
            for _, replica in sorted(self.replicas.items())
        ]
        return ModelUsage(
            self.function.name,
            self.function.version,
            living,
            self.loads,
            self.evictions,
            self.deaths,
            record.to_plain(),
        )
