# SPDX-License-Identifier: Apache-2.0
"""What a worker may take with all that its function has started, held from outside of it.

The zygote measures, the front compares, and an exchange beyond a limit ends with its worker. A function can neither
lift a limit nor hide from it: its children, and theirs, stay descendants of the worker.
"""

from collections.abc import Mapping
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

    def excess(self, function: str, usage: WorkerUsage) -> LimitError | None:
        """Why the exchange has to end; None while the worker keeps its limits."""
        if usage.own_bytes > self.memory_bytes:
            return LimitError(
                f"the function {function} took {usage.own_bytes} bytes of memory with the processes that it started, "
                f"the limit is {self.memory_bytes}, and its worker was ended: send smaller batches, or raise "
                "--worker-memory-bytes of the pool"
            )
        if usage.processes > self.processes:
            return LimitError(
                f"the function {function} ran {usage.processes} processes, the limit is {self.processes}, and its "
                "worker was ended: start fewer, or raise --worker-processes of the pool"
            )
        if usage.threads > self.threads:
            return LimitError(
                f"the function {function} ran {usage.threads} threads in its processes together, the limit is "
                f"{self.threads}, and its worker was ended: start fewer, or raise --worker-threads of the pool"
            )
        if usage.scratch_bytes > self.scratch_bytes:
            return LimitError(
                f"the function {function} had {usage.scratch_bytes} bytes in the scratch directory of its worker, the "
                f"limit is {self.scratch_bytes}, and the worker was ended: remove temporary files that are not needed "
                "any more, or raise --worker-scratch-bytes of the pool"
            )
        if usage.scratch_files > self.scratch_files:
            return LimitError(
                f"the function {function} had {usage.scratch_files} files in the scratch directory of its worker, the "
                f"limit is {self.scratch_files}, and the worker was ended: remove temporary files that are not needed "
                "any more, or raise --worker-scratch-files of the pool"
            )
        return None

    def largest_of_too_much(self, usage: Mapping[str, WorkerUsage]) -> str | None:
        """The worker to end before the kernel ends the container with all of them; None while there is room."""
        together_bytes = sum(used.own_bytes for used in usage.values())
        # What workers share with those that they forked is held once.
        held = [used.container_bytes for used in usage.values() if used.container_bytes is not None]
        together_bytes = min([together_bytes, *held])
        if together_bytes <= self.all_memory_bytes:
            return None
        return max(usage, key=lambda worker: usage[worker].own_bytes)

    def shortage(self, function: str, usage: WorkerUsage) -> WorkerError:
        """What its client is told: it may have kept its own limit, and another pool may have room."""
        return WorkerError(
            f"the workers of the pool took more than {self.all_memory_bytes} bytes of memory together, "
            f"{usage.own_bytes} of them the function {function}, most of all, whose worker was ended: give the pool "
            "more memory or fewer workers, or lower its --worker-memory-bytes"
        )
