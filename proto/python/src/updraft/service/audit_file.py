# SPDX-License-Identifier: Apache-2.0
"""Appends the lines of an audit log to a file, or to standard output, on a thread of its own.

A log collector may rename the file: the next line goes to a new one. What cannot be written is kept and tried again, or
lost and counted, as the operator has chosen. Lines reach the operating system, which writes them to the disk later.
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
# What clients have sent makes a line up to 100 KiB long.
_MOST_WAITING_BYTES = 16 * 1024 * 1024
_RETRY_SECONDS = 1.0
_ROTATION_LOOK_SECONDS = 1.0
_UNREAD_MILLISECONDS = 1000
_CLOSE_SECONDS = 2.0
_MODE = 0o640


class AuditFile:
    """Lines that are written in their order."""

    def __init__(self, path: Path, *, keeps: bool) -> None:
        """Raises OSError when the file cannot be opened.

        Args:
            path: Of a file, which is made if it is not there; STANDARD_OUTPUT.
            keeps: Whether a line that cannot be written holds up those behind it until it can; else it is lost.
        """
        self._path = path
        self._keeps = keeps
        self._descriptor = os.dup(STDOUT) if path == STANDARD_OUTPUT else _opened(path)
        self.lines = {"written": 0, "lost": 0}
        self.failure = ""
        """Why the last attempt to write has failed; empty after one that has not."""
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
        """Append a line, without its end; never waits. `written` is called on the thread once that is done."""
        with self._lock:
            too_much = self._waiting >= _MOST_WAITING or self._waiting_bytes + len(line) > _MOST_WAITING_BYTES
            if too_much or self._closing.is_set():
                self.lines["lost"] += 1
                return
            self._waiting += 1
            self._waiting_bytes += len(line)
        self._queue.put((line + b"\n", written))

    def close(self) -> None:
        """Write what waits, for two seconds at most; later lines are lost. Idempotent."""
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
        # The rest of a line that was torn is no line, and whoever reads JSON lines leaves it out.
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
    # A named pipe that nobody reads fails instead of waiting for a reader; a terminal does not become the service's.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(path, flags, _MODE)


def _wait_for_room(descriptor: int) -> None:
    """Raises TimeoutError."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    if not room.poll(_UNREAD_MILLISECONDS):
        raise TimeoutError("nobody reads it")
