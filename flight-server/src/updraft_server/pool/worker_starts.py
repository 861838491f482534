# SPDX-License-Identifier: Apache-2.0
"""Starts of a pool's workers: how many are under way, when the next may begin, why the last one failed."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from updraft_server.pool.worker import PooledWorker, WorkerState
from updraft_server.pool.zygote_client import ZygoteLostError

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 2.0
MAX_FAILURES = 5
# Within a second, a pool may start all its workers twice, and a few more, before it slows down.
_SPARE_STARTS_PER_SECOND = 20


class StartPace:
    """Pace of one pool's worker starts. This class contains only policy; the caller provides the time."""

    def __init__(self, workers: int) -> None:
        self._recent_starts: deque[float] = deque(maxlen=2 * workers + _SPARE_STARTS_PER_SECOND)
        self._failures = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether so many starts in a row have failed that a pool that is starting gives up."""
        return self._failures >= MAX_FAILURES

    def succeeded(self) -> None:
        """Record that a worker has become ready."""
        self._failures = 0

    def failed(self) -> None:
        """Record that a worker has failed to start."""
        self._failures += 1

    def next_start_after(self, now_seconds: float) -> float:
        """Record one more start and return the seconds that this start has to wait."""
        delay = min(FIRST_RETRY_SECONDS * 2**self._failures, MAX_RETRY_SECONDS) if self._failures else 0.0
        if len(self._recent_starts) == self._recent_starts.maxlen:
            delay = max(delay, self._recent_starts[0] + 1.0 - now_seconds)
        self._recent_starts.append(now_seconds + delay)
        return delay


_log = structlog.get_logger(__name__)


class WorkerStarts:
    """Worker starts: calls `start` for each, and `changed` when a start begins or ends. New workers are fresh."""

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
        """Number of starts under way that bring the pool back to its configured number of workers."""
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
                "workers die, fail to start or change owners often: delaying the next start", seconds=round(delay, 2)
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
            # A lost zygote does not count as a failed start: the next zygote may start workers.
            if not isinstance(error, ZygoteLostError):
                self._pace.failed()
            self.last_failure = str(error)
            _log.warning("a worker did not start", reason=str(error))
        self._changed()
