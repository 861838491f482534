# SPDX-License-Identifier: Apache-2.0
"""Interrupts of notebook cells and programs: Ctrl-C cancels the Spark jobs that the main thread waits for.

In a classic session, PySpark's own signal handler does not cancel these jobs, for two reasons:

- It calls `SparkContext.cancelAllJobs` in the main thread. That thread already waits on its connection to the JVM, so
  the call fails, and the jobs go on. We run this method in another thread, which has its own connection.
- A Jupyter kernel replaces PySpark's handler for each cell. We add a handler that cancels the jobs of the cell, found
  by a job tag, and then calls the kernel's handler.

The kernel's handler raises KeyboardInterrupt. During a call to the JVM, this exception breaks the connection: PySpark's
next call, such as one in a `finally` clause, raises a Py4JError or a Py4JJavaError, which hides the KeyboardInterrupt.
The JVM answers as soon as the jobs are cancelled, so we call the kernel's handler after the answer, or after a second.

Spark Connect cancels its operations itself. Nothing here imports pyspark or IPython: a process that has imported
neither of them needs no handler.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_CANCEL_TIMEOUT_SECONDS = 5.0
_ANSWER_TIMEOUT_SECONDS = 1.0
_CANCEL_AGAIN_SECONDS = 0.2
_TAG = "updraft-cell-"


class JobInterrupts:
    """Hooks into PySpark and IPython. Each pool of this process acquires them; the last release removes them."""

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
        # While a cell runs, keep the hooks, because only the main thread can restore the signal handler. `_end_cell`
        # then calls this method again.
        if self._shell is not None and self._cell is None:
            for event, callback in self._events():
                with contextlib.suppress(ValueError):
                    self._shell.events.unregister(event, callback)
            self._shell = None

    def install(self) -> None:
        """Install the hooks in PySpark and IPython, if imported; call this again after a later import."""
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
        # Only a classic session or a local server of Spark Connect has a context.
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
            # The JVM is gone. The cell's own calls to Spark will raise an error.
            return
        self._cell = _Cell(context, tag)
        self._cell.begin()

    def _end_cell(self, _result: Any = None) -> None:
        cell = self._cell
        if cell is None or threading.current_thread() is not threading.main_thread():
            return
        self._cell = None
        cell.end()
        if self._users == 0:
            self._remove()


class _Cell:
    """Running cell, with the signal handler that is set while the cell runs."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context = context
        self._tag = tag
        self._has_ended = False
        self._previous: Any = None
        """Handler that `interrupted` replaced. Each cell stores one, so handlers never call each other in a cycle."""
        self._client = getattr(getattr(context, "_gateway", None), "_gateway_client", None)
        self._call: Callable[..., Any] | None = None
        self._is_in_call = False
        """Whether the main thread waits for an answer from the JVM."""
        self._awaited: threading.Event | None = None
        """Set once the JVM has answered the call that an interrupt waits for; None if no interrupt waits."""

    def __repr__(self) -> str:
        # Appears when a user prints the signal handler, where an address would be useless.
        return "<running cell>"

    def begin(self) -> None:
        """Set the signal handler."""
        if self._client is not None:
            self._client.send_command = self._call = self._calling(self._client.send_command)
        self._previous = signal.signal(signal.SIGINT, self.interrupted)

    def end(self) -> None:
        """Restore the previous handler, unless another handler has replaced ours, and remove the tag."""
        self._has_ended = True
        if self._awaited is not None:
            self._awaited.set()
            self._awaited = None
        if signal.getsignal(signal.SIGINT) == self.interrupted:
            signal.signal(signal.SIGINT, self._previous)
        if self._client is not None and vars(self._client).get("send_command") is self._call:
            del self._client.send_command
        with contextlib.suppress(Exception):
            self._context.removeJobTag(self._tag)

    def interrupted(self, number: int, frame: Any) -> None:
        """Cancel the cell's jobs, then call the previous handler; if the JVM is being called, wait for its answer."""
        if self._awaited is not None:
            # The JVM has not answered in time, or the user has pressed the button again.
            self._awaited = None
        elif not self._has_ended:
            # If the jobs cannot be cancelled, end the cell anyway.
            with contextlib.suppress(Exception):
                _run_in_thread(self._cancel)
            if self._client is not None and _calls_jvm(frame):
                # While the jobs were being cancelled, another interrupt may have begun to wait.
                if self._awaited is None:
                    self._awaited = threading.Event()
                    threading.Thread(
                        target=self._await, args=(self._awaited,), name="updraft-interrupt", daemon=True
                    ).start()
                return
        self._raise(number, frame)

    def _raise(self, number: int, frame: Any) -> None:
        if getattr(self._previous, "__module__", "").startswith("pyspark."):
            # In a terminal, the previous handler is PySpark's own, which would also cancel the jobs of other threads.
            raise KeyboardInterrupt
        if callable(self._previous):
            self._previous(number, frame)

    def _cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)

    def _calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap py4j's method that calls the JVM, so that a waiting interrupt is raised at the end of the call."""

        @functools.wraps(call)
        def send_command(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return call(*arguments, **options)
            try:
                self._is_in_call = True
                return call(*arguments, **options)
            finally:
                self._is_in_call = False
                if self._awaited is not None:
                    self._awaited.set()
                    self._awaited = None
                    self._raise(signal.SIGINT, None)

        return send_command

    def _await(self, answered: threading.Event) -> None:
        """Keep cancelling, because jobs may start late; interrupt the main thread if the JVM answers too late."""
        began_at, has_insisted = time.monotonic(), False
        while not answered.wait(_CANCEL_AGAIN_SECONDS):
            waited_seconds = time.monotonic() - began_at
            if waited_seconds > _CANCEL_TIMEOUT_SECONDS:
                return
            # If PySpark is not in a call, it may make no further call whose answer could be awaited, so wait less.
            limit_seconds = _ANSWER_TIMEOUT_SECONDS if self._is_in_call else _CANCEL_AGAIN_SECONDS
            if waited_seconds >= limit_seconds and not has_insisted:
                has_insisted = True
                if self._awaited is answered:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            with contextlib.suppress(Exception):
                self._cancel()


def _calls_jvm(frame: Any) -> bool:
    """Return whether the frame is inside PySpark or py4j, except Spark Connect's client, which cancels by itself."""
    modules = []
    while frame is not None:
        modules.append(f"{frame.f_globals.get('__name__', '')}.")
        frame = frame.f_back
    if any(module.startswith("pyspark.sql.connect.") for module in modules):
        return False
    return any(module.startswith(("pyspark.", "py4j.")) for module in modules)


INTERRUPTS = JobInterrupts()
"""Hooks of this process."""


def _in_another_thread(cancel: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(cancel)
    def cancel_all_jobs(context: Any) -> None:
        _run_in_thread(functools.partial(cancel, context))

    return cancel_all_jobs


def _run_in_thread(task: Callable[[], None]) -> None:
    """Run a task in a new thread and raise its exception. Do not wait for a task that takes too long."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            task()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="updraft-interrupt", daemon=True)
    thread.start()
    # Without a timeout, Ctrl-C could not end this process while the JVM hangs.
    thread.join(_CANCEL_TIMEOUT_SECONDS)
    for failure in failures:
        raise failure


def _spark_context() -> Any:
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


def ipython() -> Any:
    """Return the IPython shell of this process, or None."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython is not None else None
