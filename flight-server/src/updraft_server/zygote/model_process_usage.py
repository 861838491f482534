# SPDX-License-Identifier: Apache-2.0
"""Resource usage of a model process and everything it has started, and the check against the front's limits."""

from typing import NamedTuple

from updraft_server.ipc.model_packets import LimitModels


class ModelProcessUsage(NamedTuple):
    """One measurement of a model process."""

    memory_bytes: int
    """Anonymous and shared memory beyond that of the image."""
    processes: int = 1
    """Number of processes: the model process itself, and what it has started."""
    threads: int = 1
    """Threads of all its processes together."""
    scratch_bytes: int = 0
    scratch_files: int = 0
    processor_seconds: float = 0.0
    """CPU time of all its processes since it was forked."""

    def excess(self, limits: LimitModels, batch_processor_seconds: float) -> str:
        """Return why a process that exceeds a limit was ended, as a verb phrase; empty if it is within all limits.

        `batch_processor_seconds` is the CPU time used for the current batch.
        """
        if self.processes > limits.processes:
            return (
                f"ran {self.processes} processes, the limit is {limits.processes}, and was ended: start fewer, or raise"
                " --worker-processes of the pool"
            )
        if self.threads > limits.threads:
            return (
                f"ran {self.threads} threads in its processes together, the limit is {limits.threads}, and was ended:"
                " start fewer, or raise the limit, which follows from --worker-processes of the pool"
            )
        if self.scratch_bytes > limits.scratch_bytes:
            return (
                f"had {self.scratch_bytes} bytes in its scratch directory, the limit is {limits.scratch_bytes}, and was"
                " ended: remove temporary files that are not needed any more, or raise --worker-scratch-bytes of the"
                " pool"
            )
        if self.scratch_files > limits.scratch_files:
            return (
                f"had {self.scratch_files} files in its scratch directory, the limit is {limits.scratch_files}, and was"
                " ended: remove temporary files that are not needed any more, or raise --worker-scratch-bytes of the"
                " pool"
            )
        if 0 < limits.batch_processor_seconds < batch_processor_seconds:
            return (
                f"used {batch_processor_seconds:.1f} seconds of CPU time for one batch, the limit is"
                f" {limits.batch_processor_seconds:g}, and was ended: join fewer rows (Batching), or raise"
                " --batch-cpu-seconds of the pool"
            )
        return ""
