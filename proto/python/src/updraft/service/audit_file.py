# SPDX-License-Identifier: Apache-2.0
"""Output of an audit log to a file or to standard output, on its own thread.

If a log collector renames the file, the next line goes to a new file. The operator chooses what happens to a line that
cannot be written: the service keeps and retries the line, or drops and counts it. A written line has reached the
operating system, which writes it to disk later.
"""

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from updraft.service.lossy_streams import STDOUT

STANDARD_OUTPUT = Path("-")

_MOST_WAITING = 10_000
# Text from clients can make a line up to 100 KiB long.
_MOST_WAITING_BYTES = 16 * 1024 * 1024
_RETRY_SECONDS = 1.0
_ROTATION_LOOK_SECONDS = 1.0
_UNREAD_MILLISECONDS = 1000
_CLOSE_SECONDS = 2.0
_MODE = 0o640


class AuditFile:
    """File whose lines are written in order."""

    def __init__(self, path: Path, *, keeps: bool) -> None:
        """Open the file and start the thread; raise OSError if the file cannot be opened.

        Args:
            path: Path of the file, which is created if missing, or STANDARD_OUTPUT.
            keeps: If true, retry a line that cannot be written, while the lines behind it wait. If false, the line is
                lost.
        """
        self._path = path
        self._keeps = keeps
        self._descriptor = os.dup(STDOUT) if path == STANDARD_OUTPUT else _opened(path)
        self.lines = {"written": 0, "lost": 0}
        self.failure = ""
        """Reason why the last attempt to write failed; empty if it succeeded."""
        self._lock = threading.Lock()
        self._waiting = self._waiting_bytes = 0
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[tuple[bytes, Callable[[], None]] | None] = queue.SimpleQueue()
        # Used only by the thread:
        self._is_torn = False
        self._next_look_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, line: bytes, written: Callable[[], None] = lambda: None) -> None:
        """Queue a line, given without its newline; never wait. The thread calls `written` once the line is written."""
        with self._lock:
            too_much = self._waiting >= _MOST_WAITING or self._waiting_bytes + len(line) > _MOST_WAITING_BYTES
            if too_much or self._closing.is_set():
                self.lines["lost"] += 1
                return
            self._waiting += 1
            self._waiting_bytes += len(line)
        self._queue.put((line + b"\n", written))

    def close(self) -> None:
        """Write waiting lines, for two seconds at most; later lines are lost. Idempotent."""
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            line, written = item
            is_written = self._is_delivered(line)
            with self._lock:
                self._waiting -= 1
                self._waiting_bytes -= len(line) - 1
                self.lines["written" if is_written else "lost"] += 1
            if is_written:
                written()

    def _is_delivered(self, line: bytes) -> bool:
        while True:
            try:
                self._append(line)
            except OSError as error:
                self.failure = error.strerror or str(error)
            else:
                self.failure = ""
                return True
            if not self._keeps or self._closing.wait(_RETRY_SECONDS):
                return False

    def _append(self, line: bytes) -> None:
        self._follow_rotation()
        # If the last write stopped within a line, end that fragment with a newline. Readers of JSON lines skip the
        # fragment.
        rest = memoryview(b"\n" + line if self._is_torn else line)
        while rest:
            try:
                count = os.write(self._descriptor, rest)
            except BlockingIOError:
                _wait_for_room(self._descriptor)
                continue
            rest = rest[count:]
            self._is_torn = bool(rest)

    def _follow_rotation(self) -> None:
        now_seconds = time.monotonic()
        if self._path == STANDARD_OUTPUT or now_seconds < self._next_look_seconds:
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                self._next_look_seconds = now_seconds + _ROTATION_LOOK_SECONDS
                return
        fresh = _opened(self._path)
        os.close(self._descriptor)
        self._descriptor, self._is_torn = fresh, False


def _opened(path: Path) -> int:
    # With O_NONBLOCK, opening a named pipe without a reader fails instead of waiting. With O_NOCTTY, a terminal does
    # not become the service's controlling terminal.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(path, flags, _MODE)


def _wait_for_room(descriptor: int) -> None:
    """Wait until the descriptor can take data; raise TimeoutError after a second."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    if not room.poll(_UNREAD_MILLISECONDS):
        raise TimeoutError("it has no reader")
