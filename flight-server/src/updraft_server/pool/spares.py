# SPDX-License-Identifier: Apache-2.0
"""Extra workers whose task has ended, kept for the next task that needs several at once.

A fork is quick, but what a function imports is not: a new worker would import it again for each query. Spares stay
with their owner and serve only tasks that hold a worker already, so that a pool of n workers still runs n tasks.
`updraft_server.pool.pool` owns them.
"""

import asyncio
from collections.abc import Callable

from updraft_server.pool.worker import PooledWorker, WorkerState


class SpareWorkers:
    """At most `limit` workers, each for at most `idle_seconds`."""

    def __init__(self, limit: int, idle_seconds: float, discard: Callable[[PooledWorker], None]) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._discard = discard
        self._timers: dict[PooledWorker, asyncio.TimerHandle] = {}

    def keep(self, worker: PooledWorker) -> None:
        """Keep a worker that has just been released, or discard it when there are enough."""
        if len(self._timers) >= self._limit:
            self._discard(worker)
            return
        worker.state = WorkerState.SPARE
        loop = asyncio.get_running_loop()
        self._timers[worker] = loop.call_later(self._idle_seconds, self._expire, worker)

    def take(self, fits: Callable[[PooledWorker], bool] = lambda _: True) -> PooledWorker | None:
        """Of those that fit the spare that worked last, or None."""
        for worker in reversed(list(self._timers)):
            if worker.state is WorkerState.SPARE and fits(worker):
                self.forget(worker)
                return worker
        return None

    def forget(self, worker: PooledWorker) -> None:
        """A worker is gone, spare or not."""
        timer = self._timers.pop(worker, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, worker: PooledWorker) -> None:
        del self._timers[worker]
        self._discard(worker)
