# SPDX-License-Identifier: Apache-2.0
"""Capture of the lines that PySpark's worker logs for Spark.

With `spark.sql.pyspark.worker.logging.enabled`, PySpark writes marked lines to `sys.stdout`, where Spark's daemon would
read them. In a pool, these lines go into the exchange's replies, and all other output goes to the pool's log as usual.
Each line names the function that logged it: the outermost function that PySpark has called. In a pool, modules of
`updraft_server` may call this function, so `install` replaces PySpark's search by a search that knows these modules.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, TextIO

SESSION_VARIABLE = "PYSPARK_SPARK_SESSION_UUID"

_MARK = "PYTHON_WORKER_LOGGING:"
_SEND_CHARACTERS = 64 * 1024
_MAX_CHARACTERS = 1024 * 1024


def install(worker: ModuleType) -> None:
    """Install `function_context` in PySpark's worker. Do nothing before 4.1, which does not capture logs."""
    capture = getattr(worker, "capture_outputs", None)
    if capture is not None:
        worker.capture_outputs = functools.partial(capture, function_context)  # type: ignore[attr-defined]


def function_context() -> dict[str, str]:
    """Return name and class of the function that is running, under the keys that PySpark uses."""
    function = _outermost_function(sys._getframe())
    if function is None:
        return {}
    context = {"func_name": function.f_code.co_name}
    if "self" in function.f_locals:
        context["class_name"] = type(function.f_locals["self"]).__name__
    elif "cls" in function.f_locals:
        context["class_name"] = function.f_locals["cls"].__name__
    return context


def _outermost_function(frame: FrameType) -> FrameType | None:
    """Return the outermost frame that PySpark or the pool has called, and that belongs to neither of the two."""
    found = None
    while frame.f_back is not None:
        if _is_framework(frame.f_back) and not _is_framework(frame):
            found = frame
        frame = frame.f_back
    return found


def _is_framework(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name.startswith(("pyspark.", "updraft_server.")) and ".tests." not in name


class LogCapture:
    """Replacement for `sys.stdout`."""

    def __init__(self, stdout: TextIO, send: Callable[[list[str]], None]) -> None:
        self._stdout = stdout
        self._send = send
        self._lines: list[str] = []
        self._characters = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Keep a marked line to send it later, or drop it if the limit is reached. Pass other text on."""
        if not text.startswith(_MARK):
            return self._stdout.write(text)
        with self._lock:
            if self._characters + len(text) <= _MAX_CHARACTERS:
                self._lines.append(text.rstrip("\n"))
                self._characters += len(text)
        # PySpark ends its log with a line without JSON before it returns. Send the lines then, because Spark may end
        # the exchange afterwards. Only the main thread sends frames.
        is_last = text.rstrip("\n").endswith(":")
        if (is_last or self._characters >= _SEND_CHARACTERS) and threading.current_thread() is threading.main_thread():
            self.send()
        return len(text)

    def flush(self) -> None:
        """Flush the real stdout; keep marked lines until `send`."""
        self._stdout.flush()

    def send(self) -> None:
        """Send the kept lines."""
        with self._lock:
            lines, self._lines, self._characters = self._lines, [], 0
        if lines:
            self._send(lines)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


@contextlib.contextmanager
def captured_logs(send: Callable[[list[str]], None]) -> Iterator[None]:
    """Capture logs during the block, and send the remaining lines at its end."""
    stdout = sys.stdout
    capture = LogCapture(stdout, send)
    sys.stdout = capture
    try:
        yield
    finally:
        sys.stdout = stdout
        capture.send()
