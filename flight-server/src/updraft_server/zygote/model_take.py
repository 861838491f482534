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

    def excess(self, limits: LimitModels) -> str:
        """How the process that takes too much was ended; empty while it keeps its limits."""
        if self.processes > limits.processes:
            return (
                f"ran {self.processes} processes, the limit is {limits.processes}, and was ended: start fewer, or raise"
                " --worker-processes of the pool"
            )
        if self.threads > limits.threads:
            return (
                f"ran {self.threads} threads in its processes together, the limit is {limits.threads}, and was ended:"
                " start fewer, or raise --worker-threads of the pool"
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
                " ended: remove temporary files that are not needed any more, or raise --worker-scratch-files of the"
                " pool"
            )
        return ""
