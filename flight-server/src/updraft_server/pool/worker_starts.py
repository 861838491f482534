# SPDX-License-Identifier: Apache-2.0
"""Starts of a pool's workers: how many are under way, when the next may begin, why the last one failed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from updraft_server.pool.start_pace import StartPace
from updraft_server.pool.worker import PooledWorker, WorkerState
from updraft_server.pool.zygote_client import ZygoteLostError

_log = structlog.get_logger(__name__)


class WorkerStarts:
    """Worker starts: calls `start` for each, and `changed` when one begins or ends. A started worker is fresh."""

    def __init__(
        self, workers: int, start: Callable[[], Coroutine[Any, Any, PooledWorker]], changed: Callable[[], None]
    ) -> None:
        self.extra = 0
        """Starts under way that a task waits for, beyond the configured number of workers."""
        self.last_failure = ""
        self._tasks: set[asyncio.Task[PooledWorker]] = set()
        self._pace = StartPace(workers)
        self._start = start
        self._changed = changed

    @property
    def unasked(self) -> int:
        """Number of starts under way that restore the configured numbers."""
        return len(self._tasks)

    @property
    def are_hopeless(self) -> bool:
        """Whether a pool that is starting gives up."""
        return self._pace.is_hopeless

    async def pace(self) -> None:
        """Wait until another start may begin."""
        delay = self._pace.next_start_after(asyncio.get_running_loop().time())
        if delay > 0:
            _log.warning(
                "workers die, fail to start or change owners often: the next start waits", seconds=round(delay, 2)
            )
            await asyncio.sleep(delay)

    def begin(self) -> None:
        """Begin to start a worker in the background."""
        task = asyncio.create_task(self._start())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        self._changed()

    async def start_extra(self) -> PooledWorker:
        """Start a worker beyond the configured number, at once; raises PoolError."""
        self.extra += 1
        self._changed()
        try:
            return await self._start()
        finally:
            self.extra -= 1

    async def stop(self) -> None:
        """Cancel the starts that `begin` has begun."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[PooledWorker]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._pace.succeeded()
            worker = task.result()
            if worker.state is WorkerState.STARTING:
                worker.state = WorkerState.FRESH
        else:
            # The loss of a zygote says nothing about workers: its successor may start them.
            if not isinstance(error, ZygoteLostError):
                self._pace.failed()
            self.last_failure = str(error)
            _log.warning("a worker did not start", reason=str(error))
        self._changed()
