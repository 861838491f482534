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
    """The limits in force for one exchange; zero seconds are none."""

    seconds: float
    """The smaller of the two: what a worker dies of."""
    setting: str
    """What to change for more time."""
    excess: str = "worked for more than {:g} seconds on one batch"
    """What the function has done."""
    batch_seconds: float = 0.0
    """For one batch."""
    idle_seconds: float = 0.0
    """Between taking or giving batches."""

    @classmethod
    def effective(cls, pool_seconds: float, client_milliseconds: int, idle_milliseconds: int = 0) -> Self:
        """The smallest of the limits, of which zero is none: the pool's and the client's, and that for being idle."""
        batch_seconds, setting = pool_seconds, "--batch-timeout-seconds of the pool"
        client_seconds = max(client_milliseconds, 0) / 1000
        if client_seconds and (not pool_seconds or client_seconds < pool_seconds):
            batch_seconds, setting = client_seconds, "batch_timeout_milliseconds in the limits of the client's command"
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
        return cls(batch_seconds, setting, batch_seconds=batch_seconds, idle_seconds=idle_seconds)

    def explains(self, death: WorkerDeath) -> bool:
        """Whether a worker died because of this limit."""
        return self.seconds > 0 and death.signal == signal.SIGALRM

    def error(self, subject: str) -> DeadlineError:
        """Return the client's error; `subject` names the function, as `Request.subject` does."""
        return DeadlineError(
            f"{subject} {self.excess.format(self.seconds)}, and its worker was ended: "
            f"send smaller batches, or raise {self.setting}"
        )
