# SPDX-License-Identifier: Apache-2.0
"""Packets about model processes between the zygote and a front: starts, ends, faults, limits, usage and work."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from updraft_server.ipc.worker_usage import ProcessLimits, WorkerUsage

MODEL_DESCRIPTORS = 2
# One packet holds the usage of this many functions.
FUNCTIONS_PER_PACKET = 8
MAX_FAULT_BYTES = 500


class ModelReplica(NamedTuple):
    """Living model process."""

    model: str
    """Id, unique among the processes of this zygote."""
    number: int
    """Index among the replicas of its function, from 0."""
    pid: int
    """Process id on the zygote's side: for people to read, never to act on."""
    state: str
    """State: loading, ready or retiring."""
    memory_bytes: int
    """Anonymous and shared memory of this process and its children beyond the image's, at the last measurement."""
    connections: int
    """Number of exchanges that are connected to this process."""


class ModelUsage(NamedTuple):
    """Processes of a batched function, and the work that they have done since the zygote started."""

    name: str
    version: str
    replicas: Sequence[ModelReplica]
    loads: int
    """Number of processes that have loaded the function."""
    evictions: int
    """Number of processes that the zygote ended to make room for another function's processes."""
    deaths: int
    """Number of processes that ended for other reasons, including failed loads."""
    record: Sequence[Any]
    """Histograms of rows for each batch, and of the times that rows waited for their batch: `BatchRecord.to_plain`."""

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> "ModelUsage":
        """Return the usage from `plain`, the list that JSON made of it."""
        usage = cls(*plain)
        return usage._replace(replicas=[ModelReplica(*replica) for replica in usage.replicas])


def memory_bytes(usage: Sequence[ModelUsage]) -> int:
    """Return the memory of all processes together."""
    return sum(replica.memory_bytes for each in usage for replica in each.replicas)


@dataclasses.dataclass(frozen=True, slots=True)
class LimitModels(ProcessLimits):
    """Limits, other than memory, of each model process with all processes that it has started; equal to a worker's."""

    batch_processor_seconds: float
    """CPU time for one batch; 0 sets no limit."""

    def excess(self, usage: WorkerUsage, batch_processor_seconds: float) -> str:
        """Return why a process that exceeds a limit was ended, as a verb phrase; empty if it is within all limits.

        `batch_processor_seconds` is the CPU time used for the current batch.
        """
        if (excess := self.exceeded(usage, "its scratch directory")) is not None:
            return f"{excess.took}, the limit is {excess.limit}, and was ended: {excess.remedy} of the pool"
        if 0 < self.batch_processor_seconds < batch_processor_seconds:
            return (
                f"used {batch_processor_seconds:.1f} seconds of CPU time for one batch, the limit is"
                f" {self.batch_processor_seconds:g}, and was ended: join fewer rows (Batching), or raise"
                " --batch-cpu-seconds of the pool"
            )
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelStarted:
    """Start of a model process. The packet carries MODEL_DESCRIPTORS descriptors: read ends of output and stacks."""

    model: str
    name: str
    """Name of the process's function."""
    version: str
    pid: int
    """Process id on the zygote's side: for people to read, never to act on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelEnded:
    """End of a model process."""

    model: str
    how: str
    """Verb phrase that follows "the model process" and describes how the process ended."""
    is_expected: bool
    """Whether the zygote wanted the process to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFault:
    """Notice that a batched function cannot be called any more, or that it can be called again."""

    name: str
    version: str
    fault: str
    """Why the function cannot be called; empty if it can be called again."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureModels:
    """Request of the front for the usage and the work of the model processes."""

    request: int
    first: int = 0
    """Index of the first function to report; one answer contains at most FUNCTIONS_PER_PACKET functions."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredModels:
    """Answer to MeasureModels."""

    request: int
    functions: Sequence[Sequence[Any]]
    """Fields of `ModelUsage` for each function."""
    are_last: bool
    """Whether there are no functions after these."""
