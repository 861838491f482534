# SPDX-License-Identifier: Apache-2.0
"""Model of `RetryBudget`, which allows a burst of retries, and then one retry in each interval."""

from __future__ import annotations

BURST = 10
INTERVAL_NANOS = 100_000_000


class RetryBudget:
    """Retries of all tasks of one executor at one endpoint."""

    def __init__(self) -> None:
        self._latest_nanos: int | None = None
        """Time at which the latest granted retry may begin."""

    def take_nanos(self, now_nanos: int) -> int:
        """Take one retry from the budget and return how long the retry has to wait."""
        full_nanos = now_nanos - BURST * INTERVAL_NANOS
        if self._latest_nanos is None or self._latest_nanos < full_nanos:
            self._latest_nanos = full_nanos
        self._latest_nanos += INTERVAL_NANOS
        return max(0, self._latest_nanos - now_nanos)
