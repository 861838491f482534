# SPDX-License-Identifier: Apache-2.0
"""What a model process takes with all that it has started, held against what the front allows it."""

from typing import NamedTuple

from updraft_server.ipc.model_packets import LimitModels


class ModelTake(NamedTuple):
    """One measurement."""

    memory_bytes: int
    """Anonymous and shared memory above what the image has."""
    processes: int = 1
    """The model process itself, and what it has started."""
    threads: int = 1
    """Of all its processes together."""
    scratch_bytes: int = 0
    scratch_files: int = 0
    processor_seconds: float = 0.0
    """CPU time of all its processes since it was forked."""

    def excess(self, limits: LimitModels, batch_processor_seconds: float) -> str:
        """How the process that takes too much was ended; empty while it keeps its limits.

        `batch_processor_seconds` of CPU time were used for the batch that the function works on.
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
