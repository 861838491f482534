# SPDX-License-Identifier: Apache-2.0
"""Event loop of virtual time, which never waits: its clock jumps to the next timer.

The product's asyncio code runs on this loop unmodified. Everything happens in one thread, in an order that depends on
nothing but the scheduled times, so a run can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import structlog

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)
"""Simulated process on behalf of which the current code runs. Tasks and timers inherit it."""


class DeadlockError(Exception):
    """Raised when some task still waits and no timer is left that could wake it."""


class Process:
    """Simulated process, which consists of the tasks that it has started. A crash ends all of them at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def own(self, task: asyncio.Task[Any]) -> None:
        """Add a task that this process has started."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def crash(self) -> None:
        """Cancel every task. The tasks' cleanup has no effect outside, because nothing listens to a dead process."""
        self.is_alive = False
        for task in list(self._tasks):
            task.cancel()

    def run(self, action: Callable[[], Any]) -> Any:
        """Call `action` on behalf of this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context.run(action)


class _Selector:
    """Replacement for the selector, which moves the clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("no timer is left, and something still waits")
        if timeout > 0:
            self._loop.jump()
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop with the simulation's time."""

    # `BaseEventLoop` expects its subclasses to have these attributes.
    _selector: _Selector
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self._readers: dict[int, Callable[[], object]] = {}
        self._readable: set[int] = set()
        self._descriptors = 0
        self.processes: dict[int, Any] = {}
        """Processes at the other end of simulated descriptors."""
        self.set_task_factory(_task)

    def time(self) -> float:
        return self._now

    def jump(self) -> None:
        """Move the clock to the next timer."""
        self._now = max(self._now, self._scheduled[0].when())

    def skip(self, seconds: float) -> None:
        """Let the clock jump. As after a pause of the machine, every timer that was due in this time is late."""
        self._now += seconds

    # Simulated descriptors: level-triggered, as epoll reports them.

    def new_descriptor(self) -> int:
        """Return a number for a new simulated descriptor."""
        self._descriptors += 1
        return self._descriptors

    def set_readable(self, descriptor: int, *, is_readable: bool = True) -> None:
        """Set whether a simulated descriptor has something to read."""
        if is_readable:
            self._readable.add(descriptor)
            self._notify(descriptor)
        else:
            self._readable.discard(descriptor)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = lambda: callback(*args)
        self._notify(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def remove_writer(self, fd: Any) -> bool:
        return False

    def _notify(self, descriptor: int) -> None:
        if descriptor in self._readable and (reader := self._readers.get(descriptor)) is not None:
            self.call_soon(self._read, descriptor, reader)

    def _read(self, descriptor: int, reader: Callable[[], object]) -> None:
        if self._readers.get(descriptor) is reader and descriptor in self._readable:
            reader()

    # A step on a thread takes the simulated time of its executor, or no time.

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        if executor is None:
            self.call_soon(_run_step, done, lambda: func(*args))
        else:
            executor.run(self, done, lambda: func(*args))
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _run_step(done: asyncio.Future[Any], step: Callable[[], Any]) -> None:
    """Run a step and settle its future, unless the caller has cancelled the future meanwhile."""
    try:
        result = step()
    except Exception as error:
        if not done.done():
            done.set_exception(error)
        return
    if not done.done():
        done.set_result(result)


run_step = _run_step


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    process = PROCESS.get()
    task = asyncio.Task(coroutine, loop=loop, **options)
    if process is not None:
        process.own(task)
        if not process.is_alive:
            task.cancel()
    return task


def silence_logs() -> None:
    """Drop the product's log lines, because a thousand runs would write millions of lines."""
    logger = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=logger, cache_logger_on_first_use=False)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
