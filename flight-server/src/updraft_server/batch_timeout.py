# SPDX-License-Identifier: Apache-2.0
"""How long a function may work on one batch: whose limit holds, and what its end means for the client.

The worker ends itself (`updraft_server.worker.batch_clock`); here the front recognises that death.
"""

import signal
from dataclasses import dataclass
from typing import Self

from updraft.errors import DeadlineError
from updraft_server.worker_events import WorkerDeath


@dataclass(frozen=True, slots=True)
class BatchTimeout:
    """The limit in force for one exchange; zero seconds are none."""

    seconds: float
    setting: str
    """What to change for more time."""

    @classmethod
    def effective(cls, pool_seconds: float, client_milliseconds: int) -> Self:
        """The smaller of the pool's limit and the client's, of which zero is none."""
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
            f"the function worked for more than {self.seconds:g} seconds on one batch, and its worker was ended: "
            f"send smaller batches, or raise {self.setting}"
        )
