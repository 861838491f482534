# SPDX-License-Identifier: Apache-2.0
"""Reads what a worker prints, line by line, so that it never waits for long in a print."""

import asyncio
import os
from collections.abc import Callable

_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 16 * 1024
_CRASH_START = "Fatal Python error: "
_MAX_CRASH_LINES = 200


class CrashReport:
    """What Python says about its own crash (`faulthandler`), out of the lines that a worker prints."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """Empty when there was no crash."""
        return "\n".join(self._lines)

    def take(self, line: str) -> None:
        """Keep a line that belongs to the report."""
        if line.startswith(_CRASH_START):
            self._lines = [line]
        elif 0 < len(self._lines) < _MAX_CRASH_LINES:
            self._lines.append(line)


class OutputReader:
    """Owns the reading end of a worker's output pipe and closes it at its end."""

    def __init__(self, descriptor: int, on_line: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._unfinished = b""
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read_some)

    def drain(self) -> None:
        """Pass on what has been written until now: it fits into two reads, however fast the worker writes on."""
        if self._read_some():
            self._read_some()

    def close(self) -> None:
        """Pass on the rest and close. Idempotent."""
        self.drain()
        self._close()

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
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > _MAX_LINE_BYTES:
            lines.append(self._unfinished)
            self._unfinished = b""
        for line in lines:
            self._emit(line)
        # A worker that prints faster than this reads must not keep the front from everything else.
        return len(data) == _READ_BYTES

    def _close(self) -> None:
        if self._descriptor < 0:
            return
        self._emit(self._unfinished)
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _emit(self, line: bytes) -> None:
        text = line[:_MAX_LINE_BYTES].decode("utf-8", "replace").rstrip()
        if text:
            self._on_line(text)
