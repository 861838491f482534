# SPDX-License-Identifier: Apache-2.0
"""Progress of the demo: a live line on a terminal, and elsewhere one line for each step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_REFRESH_SECONDS = 0.2
_CLEAR_LINE = "\r\x1b[K"


def _styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text


def heading(text: str) -> None:
    """Print the heading of a part."""
    print(f"\n{_styled(text, '1')}", flush=True)


def line(text: str) -> None:
    """Print one line of a part."""
    print(f"  {text}", flush=True)


def bar(value: float, largest: float, width: int = 28) -> str:
    """Return a bar whose length shows the value as a share of the largest value."""
    return "█" * max(1, round(width * value / largest))


def rows(header: Sequence[str], body: Sequence[Sequence[object]]) -> None:
    """Print a small table: the first column left-aligned, the others right-aligned."""
    cells = [list(header), *[[str(cell) for cell in row] for row in body]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    for number, row in enumerate(cells):
        text = "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        line(_styled(text, "2") if number == 0 else text)


@contextmanager
def working(what: str, progress: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show that a step runs, and for how long; several times a second, call `progress` for a few words to show."""
    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        while not done.wait(_REFRESH_SECONDS):
            sys.stdout.write(f"{_CLEAR_LINE}  {what}  {time.monotonic() - started:.1f} s  {progress()}")
            sys.stdout.flush()

    painter = threading.Thread(target=show, daemon=True) if sys.stdout.isatty() else None
    if painter is not None:
        painter.start()
    try:
        yield
    finally:
        done.set()
        if painter is not None:
            painter.join()
            sys.stdout.write(_CLEAR_LINE)
    line(f"{_styled('✓', '32')} {what}  {time.monotonic() - started:.1f} s")
