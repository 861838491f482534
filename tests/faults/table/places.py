# SPDX-License-Identifier: Apache-2.0
"""Pools in bad places: on a full disk, with a log that takes nothing, under clocks that jump."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.faults.table import hostile
from tests.faults.table.fault import ABORTED, OK, Fault
from tests.faults.table.functions import computing, well
from tests.faults.table.processes import archive
from tests.faults.table.scene import Scene
from tests.support.pool import LocalPool

_SMALL_DISK = "16m"
_DAY_SECONDS = 86_400
# Long enough for whatever the pool does every second.
_TURN_SECONDS = 2.0
_NO_ROOM = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL})
_CLOCK_SOURCE = Path(__file__).with_name("clock.c")
_OFFSET = struct.Struct("l")
# Read by every process of a pool when its interpreter starts. A zygote inherits few variables, LD_PRELOAD not among
# them: whoever was started without it starts itself once more.
_PRELOAD = """
import os, sys
if os.environ.get("LD_PRELOAD") != {library!r}:
    os.environ.update(LD_PRELOAD={library!r}, UPDRAFT_TEST_CLOCK={offset!r})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""


class _UnreadPool(LocalPool):
    """Its log goes where nothing can be read."""

    def log(self) -> str:
        return ""


@dataclass(frozen=True)
class Place:
    """Around a pool."""

    log: Path | None = None
    """Where it writes its log."""
    offset: Path | None = None
    """The file that says by how many seconds its wall clock is off."""


def rows() -> Iterator[Fault]:
    """Disks, logs and clocks."""
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
        yield Fault(idle, _jumps_idle(seconds), OK, place=_clock, needs=_why_no_clock)
        yield Fault(computing_, _jumps_computing(seconds), OK, place=_clock, needs=_why_no_clock)
    yield Fault("clock-swings", _swings, OK, place=_clock, needs=_why_no_clock)
    yield Fault("machine-pauses", _pauses, OK | ABORTED)


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
        _put_off(scene, seconds)
        time.sleep(_TURN_SECONDS)
        call = scene.call(hostile.tells_the_time)
        call.send()
        code = call.finish()
        # Otherwise nothing has jumped.
        assert abs(float(call.answers()[0]) - time.time() - seconds) < 60
        return code

    return happens


def _jumps_computing(seconds: int) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(computing(scene.notes))
        call.send()
        scene.worker()
        _put_off(scene, seconds)
        time.sleep(_TURN_SECONDS)
        scene.go()
        return call.finish()

    return happens


def _swings(scene: Scene) -> grpc.StatusCode:
    call = scene.call(computing(scene.notes))
    call.send()
    scene.worker()
    for seconds in (3600, -3600, 60, -60, 0) * 4:
        _put_off(scene, seconds)
        time.sleep(0.1)
    scene.go()
    return call.finish()


def _pauses(scene: Scene) -> grpc.StatusCode:
    """All processes at once, for longer than a heartbeat may be missing, as when a machine is moved."""
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


def _put_off(scene: Scene, seconds: int) -> None:
    # In place: the processes of the pool have mapped the file.
    with scene.place.offset.open("r+b") as offset:
        offset.write(_OFFSET.pack(seconds))


def _why_no_clock() -> str:
    return "" if shutil.which("cc") else "a clock for the pool alone needs a C compiler"


def why_no_mount() -> str:
    """Why this machine mounts no small disk; empty where it does."""
    return "" if os.getuid() == 0 else "a small disk is a mount, which needs root"


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Place]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(directory)], check=True)
    try:
        yield Place()
    finally:
        # A process that has just ended may hold it for a moment more.
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextlib.contextmanager
def _full_log(_: Path) -> Iterator[Place]:
    yield Place(log=Path("/dev/full"))


@contextlib.contextmanager
def _unread_log(directory: Path) -> Iterator[Place]:
    pipe = directory / "log"
    os.mkfifo(pipe)
    # Both ends: whoever opens a pipe that nobody reads waits for a reader.
    number = os.open(pipe, os.O_RDWR)
    try:
        yield Place(log=pipe)
    finally:
        # What is stopped now may have to say something.
        threading.Thread(target=os.close, args=(number,)).start()


@contextlib.contextmanager
def _clock(directory: Path) -> Iterator[Place]:
    library, offset = directory / "clock.so", directory / "offset"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_CLOCK_SOURCE), "-ldl"], check=True)
    offset.write_bytes(_OFFSET.pack(0))
    packages = directory / "packages"
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(_PRELOAD.format(library=str(library), offset=str(offset)))
    changed = pytest.MonkeyPatch()
    changed.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
    try:
        yield Place(offset=offset)
    finally:
        changed.undo()
