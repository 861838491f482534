# SPDX-License-Identifier: Apache-2.0
"""Limits on the resources of a worker and all processes that its function starts, enforced from outside the worker.

The zygote measures, and the front compares. If an exchange exceeds a limit, the front ends the exchange and its worker.
A function can neither lift a limit nor escape it, because all its processes stay descendants of the worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from updraft.errors import LimitError, WorkerError
from updraft_server.ipc.worker_usage import Excess, ProcessLimits, WorkerUsage

# Shares of the memory that one worker, and all workers together, may use. The rest of the memory is for the front, for
# the image that workers share, and for allocations between two checks.
_SHARE_OF_ONE = 0.75
_SHARE_OF_ALL = 0.85
# The volume of scratch directories counts as full if its free space is below this and below 15 % of what one
# worker may store.
_FULL_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class WorkerLimits(ProcessLimits):
    """Limits of every worker of a pool."""

    memory_bytes: int
    """Limit of `WorkerUsage.own_bytes`."""
    all_memory_bytes: int
    """Limit of `WorkerUsage.own_bytes` of all workers together."""

    @classmethod
    def effective(cls, *, memory_bytes: int, processes: int, scratch_bytes: int, there_is_bytes: int) -> Self:
        """Return the limits for workers that share `there_is_bytes` of memory in their container or machine.

        If `memory_bytes` is 0, the limit of one worker is three quarters of `there_is_bytes`.
        """
        memory_bytes = memory_bytes or int(_SHARE_OF_ONE * there_is_bytes)
        together_bytes = int(_SHARE_OF_ALL * there_is_bytes)
        return cls.of(processes, scratch_bytes, memory_bytes=memory_bytes, all_memory_bytes=together_bytes)

    def excess(self, subject: str, usage: WorkerUsage) -> LimitError | None:
        """Return why the exchange has to end; None if the worker is within its limits.

        `subject` names the function, as `Request.subject` does.
        """
        if (excess := self._excess(usage)) is None:
            return None
        ended = f"the limit is {excess.limit}, and its worker was ended"
        return LimitError(f"{subject} {excess.took}, {ended}: {excess.remedy} of the pool")

    def excess_at_rest(self, usage: WorkerUsage) -> str:
        """Return the limit that a worker between two exchanges exceeds; empty if it exceeds none."""
        excess = self._excess(usage)
        return "" if excess is None else f"it {excess.took}, the limit is {excess.limit}"

    def _excess(self, usage: WorkerUsage) -> Excess | None:
        if usage.own_bytes > self.memory_bytes:
            took = f"took {usage.own_bytes} bytes of memory with the processes that it started"
            remedy = "free what grows from batch to batch, or send smaller batches, or raise --worker-memory-bytes"
            return Excess(took, self.memory_bytes, remedy)
        return self.exceeded(usage, "the scratch directory of its worker")

    def largest_of_too_much(self, usage: Mapping[str, WorkerUsage]) -> str | None:
        """Return the largest worker if all workers together take too much memory, else None.

        Ending that worker keeps the kernel from ending the container with all workers.
        """
        return max(usage, key=lambda worker: usage[worker].own_bytes) if self._missing_bytes(usage) > 0 else None

    def too_much_at_rest(
        self, measured: Mapping[str, WorkerUsage], resting: Mapping[str, WorkerUsage], sessions: Sequence[str] = ()
    ) -> Mapping[str, str]:
        """Return the workers between exchanges that have to end to make room, with the reason for each.

        Args:
            measured: Current usage of all workers that have an exchange, and of some other workers.
            resting: Last known usage of the workers between exchanges.
            sessions: Resting workers of sessions, in the order of their last exchanges.
        """
        # In these older measurements, the values of the container and the volume are out of date, so drop them.
        before = {
            worker: used._replace(container_bytes=None, scratch_room_bytes=None) for worker, used in resting.items()
        }
        usage = {**before, **measured}
        stored = {worker: used.scratch_bytes for worker, used in resting.items()}
        held = {worker: used.own_bytes for worker, used in resting.items()}
        if sessions and self._is_full_of_unnamed_files(usage):
            # Unnamed files cannot be traced to a worker, so blame the worker that had the last exchange.
            return {sessions[-1]: "the volume of scratch directories is full, and named files do not explain it"}
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

    def _is_full_of_unnamed_files(self, usage: Mapping[str, WorkerUsage]) -> bool:
        """Return whether the volume of scratch directories is full although workers have stored little in them."""
        free = [used.scratch_room_bytes for used in usage.values() if used.scratch_room_bytes is not None]
        if not free:
            return False
        stored_bytes = sum(used.scratch_bytes for used in usage.values())
        full_bytes = min(_FULL_BYTES, (1 - _SHARE_OF_ALL) * self.scratch_bytes)
        return min(free) < full_bytes and stored_bytes + min(free) < _SHARE_OF_ALL * self.scratch_bytes

    def _missing_scratch_bytes(self, usage: Mapping[str, WorkerUsage]) -> int:
        """Return the bytes that workers have stored beyond 85 % of the space that they share.

        The shared space is the stored bytes plus the free bytes of the volume, but at most what one worker may store.
        The chart derives the limit of one worker from the size of its volume, because the node's disk is larger.
        """
        stored_bytes = sum(used.scratch_bytes for used in usage.values())
        free = [used.scratch_room_bytes for used in usage.values() if used.scratch_room_bytes is not None]
        room_bytes = min([self.scratch_bytes, *(stored_bytes + free_bytes for free_bytes in free)])
        return stored_bytes - int(_SHARE_OF_ALL * room_bytes)

    def _missing_bytes(self, usage: Mapping[str, WorkerUsage]) -> int:
        together_bytes = sum(used.own_bytes for used in usage.values())
        # The container counts a page once even if several forked processes share it, so its figure may be lower.
        held = [used.container_bytes for used in usage.values() if used.container_bytes is not None]
        return min([together_bytes, *held]) - self.all_memory_bytes

    def shortage(self, subject: str, usage: WorkerUsage) -> WorkerError:
        """Return the client's error.

        A retry may help, because the function was within its own limit and another pool may have room.
        """
        return WorkerError(
            f"the workers of the pool took more than {self.all_memory_bytes} bytes of memory together; {subject} took "
            f"most, {usage.own_bytes} bytes, and its worker was ended: give the pool more memory or fewer workers, or "
            "lower its --worker-memory-bytes"
        )


def _largest(amounts: Mapping[str, int], missing: int) -> Sequence[str]:
    """Return the fewest workers whose amounts add up to at least `missing`; none if all amounts together are less."""
    if sum(amounts.values()) < missing:
        return ()
    found: list[str] = []
    for worker in sorted(amounts, key=lambda worker: amounts[worker], reverse=True):
        if missing <= 0:
            break
        found.append(worker)
        missing -= amounts[worker]
    return found
