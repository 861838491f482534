# SPDX-License-Identifier: Apache-2.0
"""Lease of a real worker."""

from collections.abc import Callable

from updraft_server.pool.leases import LeaseOutcome, TaskKey
from updraft_server.pool.worker import PooledWorker


class WorkerLease:
    """`Lease` that reports its release to the pool once."""

    def __init__(
        self, held: PooledWorker, task: TaskKey | None, on_release: Callable[["WorkerLease", LeaseOutcome], None]
    ) -> None:
        self.held = held
        self.task = task
        self.worker = held.id
        self.socket = held.socket
        self.death = held.death
        self.log_context: dict[str, str] = {}
        held.works_for(self.log_context)
        self._on_release = on_release
        self._is_released = False

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back to the pool; only the first outcome counts."""
        if not self._is_released:
            self._is_released = True
            self._on_release(self, outcome)
