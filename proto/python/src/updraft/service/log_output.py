# SPDX-License-Identifier: Apache-2.0
"""Output of a service's log lines that never waits, never fails, and never holds unbounded memory.

A daemon thread writes the lines from a bounded buffer. Lines are dropped and counted if the buffer is full (the output
is unread) or if writing fails (the disk is full). Before the next line that it can write, the thread writes a line that
says how many lines are missing.
"""

import io
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from updraft.service.lossy_streams import STDERR

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_LINE_BYTES = 16 * 1024

_BUFFER_BYTES = 1024 * 1024
_WRITE_BYTES = 64 * 1024
_POLL_MILLISECONDS = 1000
_CLOSE_SECONDS = 0.5


class LogDrops:
    """Counts of this process's dropped log lines, by reason; safe to use from any thread."""

    def __init__(self) -> None:
        self.lines = {"unread": 0, "failed": 0, "flood": 0}
        """Number of lines by reason.

        `unread`: the reader is too slow or has stopped. `failed`: writing failed. `flood`: a function prints more than
        its exchange may log.
        """
        # Re-entrant, like the lock of LogOutput: while this thread logs, the garbage collector may run code that logs
        # too.
        self._lock = threading.RLock()

    def add(self, reason: str, lines: int) -> None:
        """Count dropped lines."""
        with self._lock:
            self.lines[reason] += lines


class LogOutput:
    """Writer of lines to a descriptor, on its own thread."""

    def __init__(
        self,
        descriptor: int,
        drops: LogDrops,
        gap_line: Callable[[int], bytes],
        *,
        buffer_bytes: int = _BUFFER_BYTES,
    ) -> None:
        """Start the thread; `gap_line` creates the line that says how many lines are missing."""
        self._descriptor = descriptor
        self._drops = drops
        self._gap_line = gap_line
        self._buffer_bytes = buffer_bytes
        self._lock = threading.RLock()
        self._buffered_bytes = 0
        self._skipped = 0
        """Number of lines dropped since a line was last buffered."""
        self._is_closed = False
        # Each item is text, the number of lines missing at that place, or None at the end.
        self._queue: queue.SimpleQueue[bytes | int | None] = queue.SimpleQueue()
        # Used only by the thread:
        self._missing = 0
        self._is_torn = False
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: bytes) -> None:
        """Buffer lines or drop them; never wait for the reader, never fail."""
        text = cut_line(text)
        with self._lock:
            if self._is_closed or self._buffered_bytes + len(text) > self._buffer_bytes:
                lines = text.count(b"\n")
                self._skipped += lines
                self._drops.add("unread", lines)
                return
            self._tell_skipped()
            self._buffered_bytes += len(text)
            self._queue.put(text)

    def close(self) -> None:
        """Write buffered lines, for at most half a second; later lines are dropped. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._tell_skipped()
                self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _tell_skipped(self) -> None:
        if self._skipped:
            self._queue.put(self._skipped)
            self._skipped = 0

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, bytes):
                item = self._pass_on_from(item)
            if item is None:
                break
            self._missing += item
        if self._missing:
            self._pass_on(b"")

    def _pass_on_from(self, text: bytes) -> int | None:
        """Write `text` and the text queued behind it; return the next item that is not text, or 0 if there is none."""
        pieces, size = [text], len(text)
        following: int | None = 0
        while size < _WRITE_BYTES:
            item = self._next_at_once()
            if not isinstance(item, bytes):
                following = item
                break
            pieces.append(item)
            size += len(item)
        self._pass_on(b"".join(pieces))
        with self._lock:
            self._buffered_bytes -= size
        return following

    def _next_at_once(self) -> bytes | int | None:
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return 0

    def _pass_on(self, text: bytes) -> None:
        head = b"\n" if self._is_torn else b""
        if self._missing:
            head += self._gap_line(self._missing)
        whole = head + text
        written = self._written(whole)
        if written >= len(head):
            self._missing = 0
        if written:
            self._is_torn = whole[written - 1 : written] != b"\n"
        lost = whole[max(written, len(head)) :].count(b"\n")
        if lost:
            self._missing += lost
            self._drops.add("failed", lost)

    def _written(self, data: bytes) -> int:
        """Write until everything is written or writing fails; return the number of bytes written."""
        written = 0
        try:
            while written < len(data):
                try:
                    written += os.write(self._descriptor, memoryview(data)[written:])
                except BlockingIOError:
                    self._room.poll(_POLL_MILLISECONDS)
        except OSError:
            # Drop only this data: the disk is full now, but may have room for a later line.
            return written
        return written


class _LogStream(io.RawIOBase):
    """Raw stream over a log output, for code that writes to sys.stderr."""

    def __init__(self, output: LogOutput) -> None:
        super().__init__()
        self._output = output

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of standard error, for code that writes to it directly."""
        return STDERR

    def write(self, data: "ReadableBuffer", /) -> int:
        """Buffer or drop text; return its length."""
        text = bytes(data)
        self._output.write(text)
        return len(text)


def log_stream(output: LogOutput) -> TextIO:
    """Return a text stream whose lines go to `output`."""
    raw = cast(BinaryIO, _LogStream(output))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)


def cut_line(text: bytes) -> bytes:
    """Return the text, cut to MAX_LINE_BYTES; a mark at the end says that the text was cut."""
    if len(text) <= MAX_LINE_BYTES:
        return text
    mark = b"... [cut from %d bytes]\n" % len(text)
    return text[: MAX_LINE_BYTES - len(mark)].decode("utf-8", "ignore").encode() + mark
