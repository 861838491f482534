# SPDX-License-Identifier: Apache-2.0
"""The model processes of one batched function, and the workers that wait for one."""

import math
import time
from collections.abc import Callable, Sequence

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.zygote.model_budget import Backoff
from updraft_server.zygote.model_replica import Replica, ReplicaState


class FunctionModels:
    """What is known of one function; `models` acts on it."""

    def __init__(self, function: BatchedFunction, clock: Callable[[], float] = time.monotonic) -> None:
        self.function = function
        self._clock = clock
        self.replicas: dict[int, Replica] = {}
        """Those that live, by their numbers."""
        self.is_wanted = False
        """Whether processes that are missing are to be started even if no worker waits for one."""
        self.waiting: dict[str, float] = {}
        """Workers that want a connection, in the order in which they came, and when each did."""
        self.backoff = Backoff(clock)
        self.fault = ""
        """Why the function cannot be called; empty while it can."""
        self.cannot_load = False
        """Whether the fault is that it does not load: the same call will hardly be answered soon."""
        self.deaths_in_a_row = 0
        """Of processes that had loaded it, with no batch in between that one survived."""
        self.loads = self.evictions = self.deaths = 0
        self.last_memory_bytes = 0
        """Of one process that had loaded it; 0 before the first."""
        self._past = BatchRecord()
        """Of processes that have ended."""

    def wait(self, worker: str) -> None:
        """It wants a connection."""
        self.waiting.setdefault(worker, self._clock())

    def serve(self, serve: Callable[[str], bool]) -> None:
        """Call `serve` for each worker that waits, until it returns False: that worker goes on waiting."""
        for worker in list(self.waiting):
            if not serve(worker):
                return
            self.waiting.pop(worker, None)

    def wait_no_longer(self, worker: str) -> None:
        """It has ended."""
        self.waiting.pop(worker, None)

    @property
    def waiting_since_seconds(self) -> float:
        """When the first of those that wait came; infinite where none waits."""
        return next(iter(self.waiting.values()), math.inf)

    @property
    def missing(self) -> Sequence[int]:
        """The numbers of processes to start."""
        if not (self.is_wanted or self.waiting):
            return ()
        return [number for number in range(self.function.batching.replicas) if number not in self.replicas]

    @property
    def ready(self) -> Sequence[Replica]:
        """Processes that take connections, the one with the fewest first."""
        ready = [replica for replica in self.replicas.values() if replica.state is ReplicaState.READY]
        return sorted(ready, key=lambda replica: replica.connections)

    @property
    def is_loading(self) -> bool:
        """Whether a process will be ready unless something goes wrong."""
        return any(replica.state is ReplicaState.LOADING for replica in self.replicas.values())

    def forget(self, replica: Replica) -> None:
        """It has ended; what it has done still counts."""
        del self.replicas[replica.number]
        self._past.add(BatchRecord.from_plain(replica.told.record))

    def usage(self) -> ModelUsage:
        """What a front is told."""
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
