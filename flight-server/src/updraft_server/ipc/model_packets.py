# SPDX-License-Identifier: Apache-2.0
"""What the zygote tells a front of its model processes: when they start and end, what they use and have done."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

MODEL_DESCRIPTORS = 2
# They fit into one.
FUNCTIONS_PER_PACKET = 8
MAX_FAULT_BYTES = 500


class ModelReplica(NamedTuple):
    """A model process that lives."""

    model: str
    """Its id, which no other process of this zygote has."""
    number: int
    """Which of its function's replicas it is, from 0."""
    pid: int
    """On the zygote's side: for people to read, never to act on."""
    state: str
    """loading, ready or retiring."""
    memory_bytes: int
    """Anonymous and shared memory of its processes above what the image has, when it was last measured."""
    connections: int
    """Exchanges that are connected to it."""


class ModelUsage(NamedTuple):
    """What a batched function's processes are and have done since the zygote was started."""

    name: str
    version: str
    replicas: Sequence[ModelReplica]
    loads: int
    """Processes that have loaded the function."""
    evictions: int
    """Processes that were ended to make room for another function's."""
    deaths: int
    """Processes that ended otherwise, those that could not load it included."""
    record: Sequence[Any]
    """Histograms of the rows in its batches, and of how long rows have waited for them: `BatchRecord.to_plain`."""

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> "ModelUsage":
        """What JSON has made a list of."""
        usage = cls(*plain)
        return usage._replace(replicas=[ModelReplica(*replica) for replica in usage.replicas])


def memory_bytes(usage: Sequence[ModelUsage]) -> int:
    """Of all processes together."""
    return sum(replica.memory_bytes for each in usage for replica in each.replicas)


@dataclasses.dataclass(frozen=True, slots=True)
class LimitModels:
    """What a front allows each model process beside memory, with all that it has started: as much as a worker."""

    processes: int
    threads: int
    scratch_bytes: int
    scratch_files: int
    batch_processor_seconds: float
    """CPU time for one batch; 0 sets no limit."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelStarted:
    """A model process was forked; comes with MODEL_DESCRIPTORS: the ends to read of its output and its stacks."""

    model: str
    name: str
    """Of its function."""
    version: str
    pid: int
    """On the zygote's side: for people to read, never to act on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelEnded:
    """A model process has ended."""

    model: str
    how: str
    """Goes on after "the model process"."""
    is_expected: bool
    """Whether the zygote wanted its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFault:
    """A batched function cannot be called any more, or can again."""

    name: str
    version: str
    fault: str
    """Why it cannot be called; empty when it can again."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureModels:
    """The front asks what the model processes use and have done."""

    request: int
    first: int = 0
    """The number of the first function to tell of; FUNCTIONS_PER_PACKET at most are told of."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredModels:
    """The answer."""

    request: int
    functions: Sequence[Sequence[Any]]
    """The fields of `ModelUsage`, of each function."""
    are_last: bool
    """Whether there are no functions after these."""
