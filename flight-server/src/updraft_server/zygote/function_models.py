# SPDX-License-Identifier: Apache-2.0
"""Model processes of one batched function, and the workers that wait for one."""

import math
import time
from collections.abc import Callable, Sequence

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.zygote.model_budget import Backoff
from updraft_server.zygote.model_replica import Replica, ReplicaState


class FunctionModels:
    """State of one batched function; the module `models` acts on it."""

    def __init__(self, function: BatchedFunction, clock: Callable[[], float] = time.monotonic) -> None:
        self.function = function
        self._clock = clock
        self.replicas: dict[int, Replica] = {}
        """Living processes, by their numbers."""
        self.is_wanted = False
        """Whether missing processes are started even if no worker waits for one."""
        self.waiting: dict[str, float] = {}
        """Workers that wait for a connection, in order of arrival, with their arrival times."""
        self.backoff = Backoff(clock)
        self.fault = ""
        """Why the function cannot be called; empty if it can."""
        self.cannot_load = False
        """Whether the fault is that the function does not load, so that a retry will hardly succeed soon."""
        self.deaths_in_a_row = 0
        """Deaths of processes that had loaded the function, counted since a process last finished a batch."""
        self.loads = self.evictions = self.deaths = 0
        self.last_memory_bytes = 0
        """Last measured memory of a process that has loaded the function; 0 before the first measurement."""
        self._past = BatchRecord()
        """Batches of processes that have ended."""

    def wait(self, worker: str) -> None:
        """Add a worker that wants a connection."""
        self.waiting.setdefault(worker, self._clock())

    def serve(self, serve: Callable[[str], bool]) -> None:
        """Call `serve` for each waiting worker until it returns False; that worker goes on waiting."""
        for worker in list(self.waiting):
            if not serve(worker):
                return
            self.waiting.pop(worker, None)

    def wait_no_longer(self, worker: str) -> None:
        """Remove a worker that has ended."""
        self.waiting.pop(worker, None)

    @property
    def waiting_since_seconds(self) -> float:
        """Arrival time of the worker that has waited longest; infinite if none waits."""
        return next(iter(self.waiting.values()), math.inf)

    @property
    def missing(self) -> Sequence[int]:
        """Numbers of the processes to start."""
        if not (self.is_wanted or self.waiting):
            return ()
        return [number for number in range(self.function.batching.replicas) if number not in self.replicas]

    @property
    def ready(self) -> Sequence[Replica]:
        """Processes that accept connections, the one with the fewest first."""
        ready = [replica for replica in self.replicas.values() if replica.state is ReplicaState.READY]
        return sorted(ready, key=lambda replica: replica.connections)

    @property
    def is_loading(self) -> bool:
        """Whether a process is loading the function."""
        return any(replica.state is ReplicaState.LOADING for replica in self.replicas.values())

    def forget(self, replica: Replica) -> None:
        """Remove a process that has ended; its batches still count."""
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
