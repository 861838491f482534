# SPDX-License-Identifier: Apache-2.0
"""Limits of one batch: its size in bytes, and the time that a function may work on it.

A worker ends itself when its time is over (`updraft_server.worker.batch_clock`); `BatchTimeout` recognises that death.
"""

import signal
from dataclasses import dataclass
from typing import NamedTuple, Self

from updraft.errors import DeadlineError
from updraft_server.pool.worker_events import WorkerDeath

# A batch needs this many times its size in memory, for its arguments, the function's own values and the results. For
# example, a text of 512 MiB needs 4 GiB.
_MEMORY_PER_BATCH = 8
# Added for the other columns of a row with one large value. Memory is sampled four times a second, so the limit is
# approximate.
_BESIDE_BYTES = 16 << 20


class BatchLimit(NamedTuple):
    """Largest batch that may come in parts, in bytes of Arrow data."""

    limit_bytes: int
    setting: str
    """Setting to raise for larger batches."""

    @classmethod
    def effective(cls, max_batch_bytes: int, worker_memory_bytes: int) -> Self:
        """Return the smaller of the operator's limit and the largest batch for which a worker has memory."""
        room_bytes = worker_memory_bytes // _MEMORY_PER_BATCH + _BESIDE_BYTES
        if room_bytes < max_batch_bytes:
            return cls(room_bytes, f"--worker-memory-bytes of the pool to {_MEMORY_PER_BATCH} times the batch")
        return cls(max_batch_bytes, "--max-batch-bytes of the pool")


@dataclass(frozen=True, slots=True)
class BatchTimeout:
    """Time limits of one exchange's function; zero means no limit."""

    seconds: float
    """Smaller of the two limits below. The worker's clock enforces it."""
    setting: str
    """Setting to raise for more time."""
    excess: str = "worked for more than {:g} seconds on one batch"
    """Error text that says what the function did."""
    batch_seconds: float = 0.0
    """Limit for one batch."""
    idle_seconds: float = 0.0
    """Limit on the time in which the function neither takes nor returns a batch."""

    @classmethod
    def effective(cls, batch_seconds: float, idle_milliseconds: int = 0) -> Self:
        """Return the smaller of the pool's limit and the client's limit for idle functions; zero means no limit."""
        idle_seconds = max(idle_milliseconds, 0) / 1000
        if idle_seconds and (not batch_seconds or idle_seconds < batch_seconds):
            return cls(
                idle_seconds,
                "idle_timeout_milliseconds in the limits of the client's command"
                " (spark.sql.execution.pyspark.udf.idleTimeoutSeconds)",
                "neither accepted nor returned a batch for more than {:g} seconds",
                batch_seconds=batch_seconds,
                idle_seconds=idle_seconds,
            )
        return cls(
            batch_seconds,
            "--batch-timeout-seconds of the pool",
            batch_seconds=batch_seconds,
            idle_seconds=idle_seconds,
        )

    def explains(self, death: WorkerDeath) -> bool:
        """Return whether a worker died because of this limit."""
        return self.seconds > 0 and death.signal == signal.SIGALRM

    def error(self, subject: str) -> DeadlineError:
        """Return the client's error; `subject` names the function, as `Request.subject` does."""
        return DeadlineError(
            f"{subject} {self.excess.format(self.seconds)}, and its worker was ended: "
            f"send smaller batches, or raise {self.setting}"
        )
