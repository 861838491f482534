# SPDX-License-Identifier: Apache-2.0
"""How large a batch may be that comes in parts, and the setting that decides."""

from typing import NamedTuple, Self

# A text of 512 MiB that a pandas function reads and answers with another one takes a worker 7 times as much.
_MEMORY_PER_BATCH = 8


class BatchLimit(NamedTuple):
    """A limit in bytes of Arrow data."""

    limit_bytes: int
    setting: str
    """The one to raise for more."""

    @classmethod
    def effective(cls, max_batch_bytes: int, worker_memory_bytes: int) -> Self:
        """The smaller of what the operator allows and what a worker has memory for."""
        room_bytes = worker_memory_bytes // _MEMORY_PER_BATCH
        if room_bytes < max_batch_bytes:
            return cls(room_bytes, f"--worker-memory-bytes of the pool to {_MEMORY_PER_BATCH} times the batch")
        return cls(max_batch_bytes, "--max-batch-bytes of the pool")
