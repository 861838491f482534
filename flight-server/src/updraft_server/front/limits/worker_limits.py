# SPDX-License-Identifier: Apache-2.0
"""What a worker may take with all that its function has started, held from outside of it.

The zygote measures, the front compares, and an exchange beyond a limit ends with its worker. A function can neither
lift a limit nor hide from it: its children, and theirs, stay descendants of the worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from updraft.errors import LimitError, WorkerError
from updraft_server.ipc.worker_usage import WorkerUsage

# The rest is for the front, for the image that workers share, and for the growth between two looks.
_SHARE_OF_ONE = 0.75
_SHARE_OF_ALL = 0.85


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of every worker of a pool."""

    memory_bytes: int
    """`WorkerUsage.own_bytes`."""
    processes: int
    """`WorkerUsage.processes`."""
    threads: int
    """`WorkerUsage.threads`."""
    scratch_bytes: int
    """`WorkerUsage.scratch_bytes`."""
    scratch_files: int
    """`WorkerUsage.scratch_files`."""
    all_memory_bytes: int
    """`WorkerUsage.own_bytes` of all workers together."""

    @classmethod
    def effective(
        cls,
        *,
        memory_bytes: int,
        processes: int,
        threads: int,
        scratch_bytes: int,
        scratch_files: int,
        there_is_bytes: int,
    ) -> Self:
        """With a share of the memory that the workers' container or machine has, where 0 asks to compute it."""
        memory_bytes = memory_bytes or int(_SHARE_OF_ONE * there_is_bytes)
        together_bytes = int(_SHARE_OF_ALL * there_is_bytes)
        return cls(memory_bytes, processes, threads, scratch_bytes, scratch_files, together_bytes)

    def excess(self, subject: str, usage: WorkerUsage) -> LimitError | None:
        """Return why the exchange has to end; None while the worker keeps its limits.

        `subject` names the function, as `Request.subject` does.
        """
        for used, limit, took, advice in self._comparisons(usage):
            if used > limit:
                return LimitError(
                    f"{subject} {took}, the limit is {limit}, and its worker was ended: {advice} of the pool"
                )
        return None

    def excess_at_rest(self, usage: WorkerUsage) -> str:
        """Return the limit that a worker between two exchanges exceeds; empty if it keeps them all."""
        for used, limit, took, _ in self._comparisons(usage):
            if used > limit:
                return f"it {took}, the limit is {limit}"
        return ""

    def _comparisons(self, usage: WorkerUsage) -> Sequence[tuple[int, int, str, str]]:
        """One limit: what a worker uses and may use, and the words for both."""
        tidy = "remove temporary files that are not needed any more, or raise --worker-scratch"
        return (
            (
                usage.own_bytes,
                self.memory_bytes,
                f"took {usage.own_bytes} bytes of memory with the processes that it started",
                "free what grows from batch to batch, or send smaller batches, or raise --worker-memory-bytes",
            ),
            (
                usage.processes,
                self.processes,
                f"ran {usage.processes} processes",
                "start fewer, or raise --worker-processes",
            ),
            (
                usage.threads,
                self.threads,
                f"ran {usage.threads} threads in its processes together",
                "start fewer, or raise --worker-threads",
            ),
            (
                usage.scratch_bytes,
                self.scratch_bytes,
                f"had {usage.scratch_bytes} bytes in the scratch directory of its worker",
                f"{tidy}-bytes",
            ),
            (
                usage.scratch_files,
                self.scratch_files,
                f"had {usage.scratch_files} files in the scratch directory of its worker",
                f"{tidy}-files",
            ),
        )

    def largest_of_too_much(self, usage: Mapping[str, WorkerUsage]) -> str | None:
        """The worker to end before the kernel ends the container with all of them; None while there is room."""
        return max(usage, key=lambda worker: usage[worker].own_bytes) if self._missing_bytes(usage) > 0 else None

    def too_much_at_rest(
        self, measured: Mapping[str, WorkerUsage], resting: Mapping[str, WorkerUsage]
    ) -> Mapping[str, str]:
        """The workers between exchanges to end, with the reason, so that all others have room.

        Args:
            measured: Of all workers that have an exchange, and of some others.
            resting: Of the others, when they were measured last.
        """
        # The last measurement of the container and the volume is out of date by now.
        before = {
            worker: used._replace(container_bytes=None, scratch_room_bytes=None) for worker, used in resting.items()
        }
        usage = {**before, **measured}
        stored = {worker: used.scratch_bytes for worker, used in resting.items()}
        held = {worker: used.own_bytes for worker, used in resting.items()}
        return {
            **{
                worker: f"it has {stored[worker]} bytes in its scratch directory, and others need room"
                for worker in _largest(stored, self._missing_scratch_bytes(usage))
            },
            **{
                worker: f"it holds {held[worker]} bytes of memory, and others need them"
                for worker in _largest(held, self._missing_bytes(usage))
            },
        }

    def _missing_scratch_bytes(self, usage: Mapping[str, WorkerUsage]) -> int:
        """Return the bytes that workers have stored beyond their share of their common room.

        The room is the free space of the volume and the bytes that they have stored, but no more than one worker may
        store: the chart derives that limit from the size of its volume, since the node's disk is larger.
        """
        stored_bytes = sum(used.scratch_bytes for used in usage.values())
        free = [used.scratch_room_bytes for used in usage.values() if used.scratch_room_bytes is not None]
        room_bytes = min([self.scratch_bytes, *(stored_bytes + free_bytes for free_bytes in free)])
        return stored_bytes - int(_SHARE_OF_ALL * room_bytes)

    def _missing_bytes(self, usage: Mapping[str, WorkerUsage]) -> int:
        together_bytes = sum(used.own_bytes for used in usage.values())
        # What workers share with those that they forked is held once.
        held = [used.container_bytes for used in usage.values() if used.container_bytes is not None]
        return min([together_bytes, *held]) - self.all_memory_bytes

    def shortage(self, subject: str, usage: WorkerUsage) -> WorkerError:
        """Return the client's error: the function may have kept its own limit, and another pool may have room."""
        return WorkerError(
            f"the workers of the pool took more than {self.all_memory_bytes} bytes of memory together; {subject} took "
            f"most, {usage.own_bytes} bytes, and its worker was ended: give the pool more memory or fewer workers, or "
            "lower its --worker-memory-bytes"
        )


def _largest(amounts: Mapping[str, int], missing: int) -> Sequence[str]:
    """The fewest workers whose amounts make up for what is missing; none where all of them do not."""
    if sum(amounts.values()) < missing:
        return ()
    found: list[str] = []
    for worker in sorted(amounts, key=lambda worker: amounts[worker], reverse=True):
        if missing <= 0:
            break
        found.append(worker)
        missing -= amounts[worker]
    return found
