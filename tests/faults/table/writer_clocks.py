# SPDX-License-Identifier: Apache-2.0
"""Writers under clocks that jump."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.table.clock import Clock, off_clock, why_no_clock
from tests.faults.table.writer_scene import TABLE, WriterFault, WriterScene
from tests.support.waiting import until
from updraft.errors import DeadlineError

_JUMPS = {"a-day-ahead": 86_400, "a-day-back": -86_400, "to-1970": -int(time.time())}
# Long enough for every task that the writer repeats each second.
_TURN_SECONDS = 2.0
_DEADLINE_SECONDS = 4.0


def rows() -> Iterator[WriterFault]:
    """Yield clock jumps while no file is open, while a client writes a file, and before the file's deadline."""
    for name, seconds in _JUMPS.items():
        yield _row(f"writer-clock-jumps-{name}-idle", _jumps_idle(seconds), published=True)
        yield _row(f"writer-clock-jumps-{name}-writing", _jumps_writing(seconds), published=True)
        passes = f"writer-clock-jumps-{name}-deadline-passes"
        yield _row(passes, _jumps_before_the_deadline(seconds), DeadlineError, published=False)
    yield _row("writer-clock-swings", _swings, published=True)


def _row(
    name: str,
    happens: Callable[[WriterScene], None],
    client: type[DeadlineError] | None = None,
    *,
    published: bool,
) -> WriterFault:
    return WriterFault(name, happens, client, published=published, place=_clock, needs=why_no_clock)


def _jumps_idle(seconds: int) -> Callable[[WriterScene], None]:
    def happens(scene: WriterScene) -> None:
        scene.place.put_off(seconds)
        time.sleep(_TURN_SECONDS)
        scene.write()
        # This line proves that the clock has jumped.
        until("the log has a line by the clock that is off", lambda: abs(_told(scene) - time.time() - seconds) < 60)

    return happens


def _told(scene: WriterScene) -> float:
    """Return the time of the last log line, by the writer's clock."""
    lines = [line for line in scene.writer.log().splitlines() if line.startswith("{")]
    return dt.datetime.fromisoformat(json.loads(lines[-1])["timestamp"]).timestamp()


def _jumps_writing(seconds: int) -> Callable[[WriterScene], None]:
    def happens(scene: WriterScene) -> None:
        with scene.open_file("part.parquet") as file:
            file.write(TABLE)
            scene.place.put_off(seconds)
            time.sleep(_TURN_SECONDS)
            file.write(TABLE)

    return happens


def _jumps_before_the_deadline(seconds: int) -> Callable[[WriterScene], None]:
    def happens(scene: WriterScene) -> None:
        began_seconds = time.monotonic()
        try:
            with scene.open_file("part.parquet", timeout_seconds=_DEADLINE_SECONDS) as file:
                file.write(TABLE)
                scene.place.put_off(seconds)
                while True:
                    file.write(TABLE)
                    time.sleep(0.1)
        finally:
            # If the deadline used the wall clock, the call would end at once after a jump of a day.
            assert time.monotonic() - began_seconds >= _DEADLINE_SECONDS

    return happens


def _swings(scene: WriterScene) -> None:
    with scene.open_file("part.parquet") as file:
        for seconds in (3600, -3600, 60, -60, 0) * 4:
            scene.place.put_off(seconds)
            file.write(TABLE)
            time.sleep(0.1)


@contextlib.contextmanager
def _clock(root: Path) -> Iterator[Clock]:
    # Outside the root, because the clock's files do not belong to a table.
    with off_clock(root.parent) as clock:
        yield clock
