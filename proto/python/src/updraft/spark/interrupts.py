# SPDX-License-Identifier: Apache-2.0
"""Interrupts of notebook cells and programs: Ctrl-C cancels the Spark jobs that the main thread waits for.

PySpark's own signal handler does not do that in a classic session, for two reasons:

- It calls `SparkContext.cancelAllJobs` in the main thread, over the connection to the JVM on which the thread already
  waits, so the call fails, and the jobs go on. We run this method in another thread, which has its own connection.
- A Jupyter kernel sets a signal handler of its own for each cell, which replaces PySpark's. We add one that cancels the
  jobs of the cell, found by a job tag, and then calls the kernel's.

Spark Connect cancels its operations itself. Nothing here imports pyspark or IPython: a process that has not imported
them does not need it.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_CANCEL_TIMEOUT_SECONDS = 5.0
_TAG = "updraft-cell-"


class JobInterrupts:
    """Hooks into PySpark and IPython. Each pool of this process asks for them; the last one removes them."""

    def __init__(self) -> None:
        self._users = 0
        self._cells = 0
        self._original: Callable[[Any], None] | None = None
        self._patched: Callable[[Any], None] | None = None
        self._shell: Any = None
        self._cell: _Cell | None = None

    def acquire(self) -> None:
        """Install the hooks, once; pair it with `release`."""
        self._users += 1
        self.install()

    def release(self) -> None:
        """Remove the hooks after the last `acquire`, and restore what they replaced."""
        self._users -= 1
        if self._users == 0:
            self._remove()

    def _remove(self) -> None:
        context = _spark_context()
        if self._original is not None and context is not None and context.cancelAllJobs is self._patched:
            context.cancelAllJobs = self._original
        self._original = None
        self._end_cell()
        # Another thread cannot restore the handler of signals: the end of the cell does, and then calls this again.
        if self._shell is not None and self._cell is None:
            for event, callback in self._events():
                with contextlib.suppress(ValueError):
                    self._shell.events.unregister(event, callback)
            self._shell = None

    def install(self) -> None:
        """Add the hooks to what is imported by now. A session does so again, because more may be imported later."""
        context = _spark_context()
        if context is not None and self._original is None:
            self._original = context.cancelAllJobs
            self._patched = context.cancelAllJobs = _in_another_thread(context.cancelAllJobs)
        shell = ipython()
        if shell is not None and self._shell is None:
            self._shell = shell
            for event, callback in self._events():
                shell.events.register(event, callback)

    def _events(self) -> list[tuple[str, Callable[[Any], None]]]:
        return [("pre_run_cell", self._begin_cell), ("post_run_cell", self._end_cell)]

    def _begin_cell(self, _info: Any = None) -> None:
        self.install()
        if threading.current_thread() is not threading.main_thread():
            return
        context = getattr(_spark_context(), "_active_spark_context", None)
        # Spark Connect has no context here.
        if context is None or self._cell is not None:
            return
        if signal.getsignal(signal.SIGINT) is None:
            # Python could not restore a handler that was not set from Python.
            return
        self._cells += 1
        tag = f"{_TAG}{os.getpid()}-{self._cells}"
        try:
            context.addJobTag(tag)
        except Exception:
            # The JVM is gone; the cell's own call of Spark says so.
            return
        self._cell = _Cell(context, tag)
        self._cell.previous = signal.signal(signal.SIGINT, self._cell.interrupted)

    def _end_cell(self, _result: Any = None) -> None:
        cell = self._cell
        if cell is None or threading.current_thread() is not threading.main_thread():
            return
        self._cell = None
        cell.end()
        if self._users == 0:
            self._remove()


class _Cell:
    """Running cell, and the handler of signals that is in place while it runs."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context = context
        self._tag = tag
        self._has_ended = False
        self.previous: Any = None
        """Handler that this one replaced. Each cell has its own, so handlers that call one another make no circle."""

    def __repr__(self) -> str:
        # People who print the handler need no address.
        return "<running cell>"

    def end(self) -> None:
        """Restore the previous handler, unless another one has replaced ours, and remove the tag."""
        self._has_ended = True
        if signal.getsignal(signal.SIGINT) == self.interrupted:
            signal.signal(signal.SIGINT, self.previous)
        with contextlib.suppress(Exception):
            self._context.removeJobTag(self._tag)

    def interrupted(self, number: int, frame: Any) -> None:
        """Cancel the cell's jobs, and do what the previous handler does."""
        if not self._has_ended:
            # A job that cannot be cancelled does not keep the cell from ending.
            with contextlib.suppress(Exception):
                _run_in_thread(functools.partial(self._context.cancelJobsWithTag, self._tag))
        if callable(self.previous):
            self.previous(number, frame)


INTERRUPTS = JobInterrupts()
"""Hooks of this process."""


def _in_another_thread(cancel: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(cancel)
    def cancel_all_jobs(context: Any) -> None:
        _run_in_thread(functools.partial(cancel, context))

    return cancel_all_jobs


def _run_in_thread(task: Callable[[], None]) -> None:
    """Run a task in a thread of its own, and raise its exception. A task that takes too long goes on in the thread."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            task()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="updraft-interrupt", daemon=True)
    thread.start()
    # Without a bound, a JVM that hangs could not even be left with Ctrl-C.
    thread.join(_CANCEL_TIMEOUT_SECONDS)
    for failure in failures:
        raise failure


def _spark_context() -> Any:
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


def ipython() -> Any:
    """Return the IPython shell of this process, or None."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython is not None else None
