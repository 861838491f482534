# SPDX-License-Identifier: Apache-2.0
"""How large a batch may be that comes in parts, and the setting that decides."""

from typing import NamedTuple, Self

# Arguments, the function's own values and the results: a text of 512 MiB fits workers that may take 4 GiB.
_MEMORY_PER_BATCH = 8
# What a row has beside its one large value. Workers are looked at four times a second: it is no sharp limit.
_BESIDE_BYTES = 16 << 20


class BatchLimit(NamedTuple):
    """A limit in bytes of Arrow data."""

    limit_bytes: int
    setting: str
    """The one to raise for more."""

    @classmethod
    def effective(cls, max_batch_bytes: int, worker_memory_bytes: int) -> Self:
        """The smaller of what the operator allows and what a worker has memory for."""
        room_bytes = worker_memory_bytes // _MEMORY_PER_BATCH + _BESIDE_BYTES
        if room_bytes < max_batch_bytes:
            return cls(room_bytes, f"--worker-memory-bytes of the pool to {_MEMORY_PER_BATCH} times the batch")
        return cls(max_batch_bytes, "--max-batch-bytes of the pool")
