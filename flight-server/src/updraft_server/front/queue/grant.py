# SPDX-License-Identifier: Apache-2.0
"""Grant of a worker by `updraft_server.front.queue.admission`."""

from collections.abc import Callable

from updraft_server.pool.leases import Lease, LeaseOutcome


class Grant:
    """Worker granted to one exchange; released once."""

    def __init__(self, lease: Lease, on_release: Callable[[], None]) -> None:
        self.lease = lease
        self._on_release: Callable[[], None] | None = on_release

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back; only the first call counts."""
        if self._on_release is None:
            return
        on_release, self._on_release = self._on_release, None
        on_release()
        self.lease.release(outcome)
