# SPDX-License-Identifier: Apache-2.0
"""How long a function may work on one batch, or be idle: whose limit holds, and what its end means for the client.

The worker ends itself (`updraft_server.worker.batch_clock`); here the front recognises that death.
"""

import signal
from dataclasses import dataclass
from typing import Self

from updraft.errors import DeadlineError
from updraft_server.pool.worker_events import WorkerDeath


@dataclass(frozen=True, slots=True)
class BatchTimeout:
    """The limit in force for one exchange; zero seconds are none."""

    seconds: float
    setting: str
    """What to change for more time."""
    excess: str = "worked for more than {:g} seconds on one batch"
    """What the function has done."""

    @classmethod
    def effective(cls, pool_seconds: float, client_milliseconds: int, idle_milliseconds: int = 0) -> Self:
        """The smallest of the limits, of which zero is none: the pool's and the client's, and that for being idle."""
        batch = cls._for_batches(pool_seconds, client_milliseconds)
        idle_seconds = max(idle_milliseconds, 0) / 1000
        if idle_seconds and (not batch.seconds or idle_seconds < batch.seconds):
            return cls(
                idle_seconds,
                "idle_timeout_milliseconds in the limits of the client's command"
                " (spark.sql.execution.pyspark.udf.idleTimeoutSeconds)",
                "neither took nor gave a batch for more than {:g} seconds",
            )
        return batch

    @classmethod
    def _for_batches(cls, pool_seconds: float, client_milliseconds: int) -> Self:
        client_seconds = max(client_milliseconds, 0) / 1000
        if client_seconds and (not pool_seconds or client_seconds < pool_seconds):
            return cls(client_seconds, "batch_timeout_milliseconds in the limits of the client's command")
        return cls(pool_seconds, "--batch-timeout-seconds of the pool")

    def explains(self, death: WorkerDeath) -> bool:
        """Whether a worker died because of this limit."""
        return self.seconds > 0 and death.signal == signal.SIGALRM

    def error(self) -> DeadlineError:
        """What the client is told."""
        return DeadlineError(
            f"the function {self.excess.format(self.seconds)}, and its worker was ended: "
            f"send smaller batches, or raise {self.setting}"
        )
