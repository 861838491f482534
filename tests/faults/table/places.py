# SPDX-License-Identifier: Apache-2.0
"""Pools in bad environments: on a full disk, with a log that cannot be written, under clocks that jump."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.faults.table import hostile
from tests.faults.table.clock import Clock, off_clock, why_no_clock
from tests.faults.table.fault import DEADLINE, OK, Fault
from tests.faults.table.functions import computing, well
from tests.faults.table.processes import archive
from tests.faults.table.scene import Scene
from tests.support.disks import small_disk, why_no_mount
from tests.support.pool import LocalPool

_SMALL_DISK = "16m"
_DAY_SECONDS = 86_400
# Long enough for every task that the pool repeats each second.
_TURN_SECONDS = 2.0
# Long enough for the first batch to reach its function.
_DEADLINE_SECONDS = 6.0
_NO_ROOM = frozenset({grpc.StatusCode.UNAVAILABLE})


class _UnreadPool(LocalPool):
    """Pool whose log cannot be read."""

    def log(self) -> str:
        return ""


@dataclass(frozen=True)
class Place:
    """Environment of a pool."""

    log: Path | None = None
    """Path of its log."""
    clock: Clock | None = None
    """Wall clock of the pool."""


def rows() -> Iterator[Fault]:
    """Yield faults of disks, logs and clocks."""
    yield Fault("disk-filled-by-a-function", _runs(hostile.fills_scratch), OK, place=_small_disk, needs=why_no_mount)
    yield Fault(
        "disk-full-when-an-artifact-arrives", _uploads(32 << 20), _NO_ROOM, place=_small_disk, needs=why_no_mount
    )
    yield Fault(
        "disk-full-when-an-archive-is-unpacked", _uploads(10 << 20), _NO_ROOM, place=_small_disk, needs=why_no_mount
    )
    yield Fault("log-on-a-full-disk", _runs(hostile.prints), OK, make=_UnreadPool, place=_full_log)
    yield Fault("log-that-nobody-reads", _runs(hostile.prints), OK, make=_UnreadPool, place=_unread_log)
    jumps = {"a-day-ahead": _DAY_SECONDS, "a-day-back": -_DAY_SECONDS, "to-1970": -int(time.time())}
    for name, seconds in jumps.items():
        idle, computing_ = f"clock-jumps-{name}-idle", f"clock-jumps-{name}-computing"
        yield Fault(idle, _jumps_idle(seconds), OK, place=_clock, needs=why_no_clock)
        yield Fault(computing_, _jumps_computing(seconds), OK, place=_clock, needs=why_no_clock)
        passing = f"clock-jumps-{name}-deadline-passes"
        yield Fault(passing, _jumps_before_the_deadline(seconds), DEADLINE, place=_clock, needs=why_no_clock)
    yield Fault("clock-swings", _swings, OK, place=_clock, needs=why_no_clock)
    yield Fault("machine-pauses", _pauses, OK)


def _runs(function: Callable[[Any], Any]) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(function)
        call.send()
        return call.finish()

    return happens


def _uploads(size_bytes: int) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        return scene.call(well, artifacts={"dir": archive(size_bytes)}).finish()

    return happens


def _jumps_idle(seconds: int) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        scene.place.clock.put_off(seconds)
        time.sleep(_TURN_SECONDS)
        call = scene.call(hostile.tells_the_time)
        call.send()
        code = call.finish()
        # This line proves that the clock has jumped.
        assert abs(float(call.answers()[0]) - time.time() - seconds) < 60
        return code

    return happens


def _jumps_computing(seconds: int) -> Callable[[Scene], grpc.StatusCode]:
    """Make the clock jump long before the call's deadline; a jump ahead must not bring the deadline forward."""

    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(computing(scene.notes))
        call.send()
        scene.worker()
        scene.place.clock.put_off(seconds)
        time.sleep(_TURN_SECONDS)
        scene.go()
        return call.finish()

    return happens


def _jumps_before_the_deadline(seconds: int) -> Callable[[Scene], grpc.StatusCode]:
    """Make the clock jump shortly before the client's deadline; the jump must not move the deadline."""

    def happens(scene: Scene) -> grpc.StatusCode:
        began_seconds = time.monotonic()
        call = scene.call(computing(scene.notes), timeout_seconds=_DEADLINE_SECONDS)
        call.send()
        scene.victims.append(scene.worker())
        scene.place.clock.put_off(seconds)
        code = call.ended()
        # If the deadline used the wall clock, the call would end at once after a jump of a day.
        assert time.monotonic() - began_seconds >= _DEADLINE_SECONDS
        return code

    return happens


def _swings(scene: Scene) -> grpc.StatusCode:
    call = scene.call(computing(scene.notes))
    call.send()
    scene.worker()
    for seconds in (3600, -3600, 60, -60, 0) * 4:
        scene.place.clock.put_off(seconds)
        time.sleep(0.1)
    scene.go()
    return call.finish()


def _pauses(scene: Scene) -> grpc.StatusCode:
    """Suspend all processes for longer than a heartbeat may be missing, as when a machine is migrated."""
    call = scene.call(computing(scene.notes), timeout_seconds=None)
    call.send()
    scene.worker()
    members = scene.pool.members()
    for process in members:
        process.suspend()
    time.sleep(8)
    for process in reversed(members):
        process.resume()
    scene.go()
    return call.finish()


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Place]:
    with small_disk(directory, _SMALL_DISK):
        yield Place()


@contextlib.contextmanager
def _full_log(_: Path) -> Iterator[Place]:
    yield Place(log=Path("/dev/full"))


@contextlib.contextmanager
def _unread_log(directory: Path) -> Iterator[Place]:
    pipe = directory / "log"
    os.mkfifo(pipe)
    # Open both ends, because opening a pipe without a reader blocks.
    number = os.open(pipe, os.O_RDWR)
    try:
        yield Place(log=pipe)
    finally:
        # Close the pipe in a thread, because stopped processes may still write to the log.
        threading.Thread(target=os.close, args=(number,)).start()


@contextlib.contextmanager
def _clock(directory: Path) -> Iterator[Place]:
    with off_clock(directory) as clock:
        yield Place(clock=clock)
