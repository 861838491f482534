# SPDX-License-Identifier: Apache-2.0
"""Progress of a notebook cell that runs functions on a pool: one line, made from the pool's status."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

_LOOK_SECONDS = 1.0
_END_TIMEOUT_SECONDS = 1.0


class CellProgress:
    """Line below a cell, from `begin` to `end` of the cell; it appears once the pool has worked for a second."""

    def __init__(self, status: Callable[[], Mapping[str, Any]], show: Callable[[str], object] | None = None) -> None:
        """Prepare the line.

        Args:
            status: Returns the pool's `/status.json`, or raises OSError.
            show: Shows a line in place of the previous line; None shows the line in the notebook or on the terminal.
        """
        self._status = status
        self._show = show
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread that follows the pool."""
        if self._ended is None:
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=self._follow, args=(self._ended,), name="updraft-progress", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Stop following the pool."""
        if self._ended is not None and self._thread is not None:
            self._ended.set()
            # Limit the wait: a pool or a JVM that does not answer must not hold up the next cell.
            self._thread.join(_END_TIMEOUT_SECONDS)
            self._ended = self._thread = None

    def _follow(self, ended: threading.Event) -> None:
        rows, last_rows, seen, show, completions = 0, None, "", self._show, _Completions()
        began_at: float | None = None
        # The pool takes a sample every few seconds. Ignore the current sample, which was taken before the cell began.
        with contextlib.suppress(OSError):
            status = self._status()
            seen, last_rows = status["at"], status["rows"]
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(OSError):
                status = self._status()
                if status["at"] == seen or not status["history"]["busy"]:
                    continue
                # If the front was replaced, its count of rows has restarted at 0.
                rows += max(0, status["rows"] - last_rows) if last_rows is not None else 0
                seen, last_rows = status["at"], status["rows"]
                if status["exchanges_open"] or (show is not None and rows):
                    show = show or _shown_in_place()
                    # Count from the first busy sample. Before it, Spark compiled the query or the cell did other work.
                    began_at = began_at or time.monotonic() - status["history"]["interval_seconds"]
                    seconds = time.monotonic() - began_at
                    tasks = _tasks()
                    line = progress_line(status, rows, tasks, seconds, completions.look(tasks, seconds))
                    if not ended.is_set():
                        show(line)
        if self._show is None and show is not None and not _is_in_notebook():
            # Clear the line, so that the terminal's prompt does not begin behind it.
            show("")


class _Completions:
    """Time of the last change in the counts of Spark's tasks: how long the pool had worked for the cell by then."""

    def __init__(self) -> None:
        self._tasks: tuple[int, int] | None = None
        self._seconds = 0.0

    def look(self, tasks: tuple[int, int] | None, seconds: float) -> float:
        if tasks != self._tasks:
            self._tasks, self._seconds = tasks, seconds
        return self._seconds


def progress_line(
    status: Mapping[str, Any],
    rows: int,
    tasks: tuple[int, int] | None,
    seconds: float,
    completed_seconds: float | None = None,
) -> str:
    """Return the line.

    Args:
        status: The pool's `/status.json`.
        rows: Number of rows that functions have taken.
        tasks: Numbers of completed tasks and of all tasks in Spark's running stages; None if unknown.
        seconds: How long the pool has worked for the cell.
        completed_seconds: Value of `seconds` when the last task completed; None if a task has completed just now.
    """
    workers = status["workers"]
    # While workers compute large batches, they take no rows. Show the average then: 0 rows/s would look like a stop.
    rows_per_second = status["history"]["rows_per_second"][-1] or rows / seconds
    parts = [
        f"{rows:,.0f} rows",
        f"{rows_per_second:,.0f} rows/s",
        f"{workers['busy']} of {workers['configured']} workers busy",
        f"{status['queue']['waiting']} waiting",
    ]
    if tasks is not None:
        completed, total = tasks
        parts.append(f"{completed} of {total} tasks")
        all_seconds = (seconds if completed_seconds is None else completed_seconds) * total / max(completed, 1)
        # Show no estimate that has already passed: the running tasks take longer than the completed tasks.
        if completed and all_seconds > seconds:
            parts.append(f"about {all_seconds - seconds:.0f} s left")
    return f"updraft: {', '.join(parts)}"


def _tasks() -> tuple[int, int] | None:
    """Return the numbers of completed tasks and of all tasks in the running stages; None without a classic session."""
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is None:
        return None
    # The session may end while we ask.
    with contextlib.suppress(Exception):
        tracker = context.statusTracker()
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        if stages:
            return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return None


def _is_in_notebook() -> bool:
    return "IPython.display" in sys.modules and "ipykernel" in sys.modules


def _shown_in_place() -> Callable[[str], object]:
    """Return a function that shows a line in place of the previous line, in a notebook or on a terminal."""
    if not _is_in_notebook():
        return _show_on_terminal
    handle: Any = None

    def show(line: str) -> None:
        nonlocal handle
        if handle is None:
            handle = sys.modules["IPython.display"].display({"text/plain": line}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": line}, raw=True)

    return show


def _show_on_terminal(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()
