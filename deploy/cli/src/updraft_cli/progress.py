# SPDX-License-Identifier: Apache-2.0
"""Progress bar on a terminal's standard error: rows, their share if the total is known, and rows per second."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

_EVERY_SECONDS = 0.1
_BAR_CHARACTERS = 30


class Progress:
    """Bar that is drawn at most ten times a second, and only on a terminal."""

    def __init__(
        self,
        total_rows: int | None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_wanted: bool = True,
    ) -> None:
        self._total_rows = total_rows
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._started_at = self._drawn_at = clock()
        self._is_shown = is_wanted and self._stream.isatty()
        self._rows = 0

    def add(self, rows: int) -> None:
        """Count rows."""
        self._rows += rows
        if self._is_shown and self._clock() - self._drawn_at >= _EVERY_SECONDS:
            self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._is_shown and self._drawn_at > self._started_at:
            self._draw()
            self._stream.write("\n")

    def line(self) -> str:
        """Return the bar's text."""
        seconds = self._clock() - self._started_at
        rate = f"{self._rows / seconds:,.0f} rows/s" if seconds else "- rows/s"
        if not self._total_rows:
            return f"{self._rows:,} rows  {rate}"
        share = min(1.0, self._rows / self._total_rows)
        filled = int(share * _BAR_CHARACTERS)
        bar = "#" * filled + "-" * (_BAR_CHARACTERS - filled)
        return f"[{bar}] {share:4.0%}  {self._rows:,} of {self._total_rows:,} rows  {rate}"

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        # The escape sequence erases the rest of a longer earlier line.
        self._stream.write(f"\r{self.line()}\x1b[K")
        self._stream.flush()
