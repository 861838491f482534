# SPDX-License-Identifier: Apache-2.0
"""Readers of a worker's two pipes: one for its output, one for its Python stacks.

The front reads the output so that printing never blocks a worker for long. One read takes at most 64 KiB and passes on
no more lines than the budget allows. The front searches further lines for a crash report, then counts and drops
these lines. A worker writes its stacks when the zygote asks for them.
"""

import asyncio
import fcntl
import os
import sys
import termios
import time
from collections.abc import Callable
from typing import NamedTuple

from updraft_server.ipc.zygote_packets import MAX_STACK_BYTES
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput


class Outputs(NamedTuple):
    """Receivers of the output of a pool's processes, and its limit."""

    lines_per_second: float
    """Lines that each process may print for one exchange, in the long run."""
    on_line: Callable[[WorkerOutput], None]
    on_drop: Callable[[DroppedOutput], None]
    """Called for output beyond the limit."""


class TokenBucket:
    """Tokens up to `capacity`, refilled by `per_second`; full at the start."""

    def __init__(self, per_second: float, capacity: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._clock = clock
        self.refill()

    def refill(self) -> None:
        """Fill the bucket up at once."""
        self._tokens = self._capacity
        self._looked_seconds = self._clock()

    def take(self, tokens: float) -> bool:
        """Take all of the tokens or none; returns False if there are too few."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._looked_seconds) * self._per_second)
        self._looked_seconds = now
        if tokens > self._tokens:
            return False
        self._tokens -= tokens
        return True


MAX_LINE_BYTES = 8 * 1024

_READ_BYTES = 64 * 1024
_BYTES_PER_TOKEN = 1024
_BURST_SECONDS = 2.0
# With a smaller burst, the longest line would never be passed on.
_MIN_BURST_LINES = 2 * MAX_LINE_BYTES / _BYTES_PER_TOKEN
_REPORT_SECONDS = 10.0
_CRASH_START = b"Fatal Python error: "
_MAX_CRASH_LINES = 200


class CrashReport:
    """Python's report of its own crash (`faulthandler`), found in the lines that a worker prints."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """Text of the report; empty if there was no crash."""
        return "\n".join(self._lines)

    def take(self, lines: bytes) -> None:
        """Keep the lines that belong to a report; a new report replaces an older one. `lines` contains whole lines."""
        start = (b"\n" + lines).rfind(b"\n" + _CRASH_START)
        if start >= 0:
            self._lines = []
            lines = lines[start:]
        room = _MAX_CRASH_LINES - len(self._lines)
        if room > 0 and (start >= 0 or self._lines):
            self._lines.extend(text for line in lines.split(b"\n", room)[:room] if (text := _text(line)))


class OutputReader:
    """Owner of the read end of a worker's output pipe. It closes the pipe when the output ends.

    It calls `on_line` with each line that it passes on. It calls `on_drop` with the numbers of dropped lines and bytes,
    every ten seconds and when `report_drops` is called.
    """

    def __init__(
        self,
        descriptor: int,
        lines_per_second: float,
        on_line: Callable[[str], None],
        on_drop: Callable[[int, int], None],
    ) -> None:
        self.crash = CrashReport()
        self._descriptor = descriptor
        self._budget = TokenBucket(lines_per_second, max(lines_per_second * _BURST_SECONDS, _MIN_BURST_LINES))
        self._on_line = on_line
        self._on_drop = on_drop
        self._dropped_lines = self._dropped_bytes = 0
        self._dropping_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._unfinished = b""
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read_some)

    def next_exchange(self) -> None:
        """Pass on and report what the pipe contains now; later output has a new budget.

        This reads no more than the pipe contains now, even if a function has enlarged the pipe and continues to write.
        """
        left_bytes = self._waiting_bytes()
        while left_bytes > 0 and self._read_some():
            left_bytes -= _READ_BYTES
        # An unfinished line must not become the beginning of the next exchange's first line.
        self._take_lines(self._unfinished)
        self._unfinished = b""
        self.report_drops()
        self._budget.refill()

    def _waiting_bytes(self) -> int:
        if self._descriptor < 0:
            return 0
        answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        return int.from_bytes(answer, sys.byteorder)

    def report_drops(self) -> None:
        """Call `on_drop` if anything was dropped."""
        if self._dropped_bytes:
            self._on_drop(self._dropped_lines, self._dropped_bytes)
        self._dropped_lines = self._dropped_bytes = 0

    def close(self) -> None:
        """Pass on and report the remaining output, and close the pipe. Idempotent."""
        self.next_exchange()
        self._close()
        self.report_drops()

    def _read_some(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close()
            return False
        self._take(data)
        # A worker that prints faster than the front reads must not keep the front from its other work.
        return len(data) == _READ_BYTES

    def _take(self, data: bytes) -> None:
        text = self._unfinished + data
        end = text.rfind(b"\n") + 1
        if len(text) - end > MAX_LINE_BYTES:
            end = len(text)
        self._unfinished = text[end:]
        self._take_lines(text[:end])

    def _take_lines(self, lines: bytes) -> None:
        if not lines:
            return
        self.crash.take(lines)
        start = 0
        while start < len(lines):
            end = lines.find(b"\n", start)
            end = len(lines) if end < 0 else end
            line = lines[start : min(end, start + MAX_LINE_BYTES)]
            if not self._budget.take(1 + len(line) // _BYTES_PER_TOKEN):
                self._drop(lines[start:])
                return
            if text := _text(line):
                cut_bytes = end - start - len(line)
                self._on_line(f"{text}... [{cut_bytes} bytes more]" if cut_bytes else text)
            start = end + 1

    def _drop(self, lines: bytes) -> None:
        now = time.monotonic()
        if not self._dropped_bytes:
            self._dropping_since = now
        self._dropped_lines += lines.count(b"\n") + (not lines.endswith(b"\n"))
        self._dropped_bytes += len(lines)
        if now - self._dropping_since >= _REPORT_SECONDS:
            self.report_drops()

    def _close(self) -> None:
        if self._descriptor < 0:
            return
        self._take_lines(self._unfinished)
        self._unfinished = b""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1


def _text(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode("utf-8", "replace").rstrip()


_FIRST_SECONDS = 2.0
# Stacks have no end mark, but when their first part has arrived, the other parts follow at once.
_NEXT_SECONDS = 0.1
# A function that writes a little at a time must not hold up the reader.
_LONGEST_READ_SECONDS = 3.0


class StackReader:
    """Front's end of the pipe for stacks. A function that writes to the pipe falsifies only its own stacks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()
        self._last_line = self._next_last_line = b""
        os.set_blocking(descriptor, False)

    async def read(self, ask: Callable[[], None]) -> str:
        """Return the stacks of all threads, the innermost call first; empty if the worker does not answer.

        Args:
            ask: Makes the worker write its stacks.
        """
        async with self._turn:
            self._read_what_is_there()
            ask()
            text = b""
            deadline = time.monotonic() + _LONGEST_READ_SECONDS
            while len(text) < MAX_STACK_BYTES and await self._has_more(_NEXT_SECONDS if text else _FIRST_SECONDS):
                if time.monotonic() > deadline:
                    break
                more = self._read_what_is_there()
                if not more:
                    # The worker has ended.
                    break
                text += more
                if self._last_line and text.endswith(self._last_line):
                    break
            else:
                self._learn_end_of(text)
            return text[:MAX_STACK_BYTES].decode("utf-8", "replace")

    def _learn_end_of(self, text: bytes) -> None:
        """Remember the last line of complete stacks, so that later reads know when they have read everything.

        The main thread's stack is last and ends with its outermost call, which is always the same. Two texts must have
        the same last line, because the worker may have been interrupted while it wrote one of them.
        """
        last_line = text[text.rfind(b"\n", 0, -1) :] if text.count(b"\n") > 1 and text.endswith(b"\n") else b""
        self._last_line = last_line if last_line == self._next_last_line else b""
        self._next_last_line = last_line

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    async def _has_more(self, within_seconds: float) -> bool:
        if self._descriptor < 0:
            return False
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            async with asyncio.timeout(within_seconds):
                await readable.wait()
        except TimeoutError:
            return False
        finally:
            if self._descriptor >= 0:
                loop.remove_reader(self._descriptor)
        return True

    def _read_what_is_there(self) -> bytes:
        """Read at most MAX_STACK_BYTES, even if a function continues to write."""
        if self._descriptor < 0:
            return b""
        try:
            return os.read(self._descriptor, MAX_STACK_BYTES)
        except OSError:
            return b""
