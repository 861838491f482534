# SPDX-License-Identifier: Apache-2.0
"""Simulated disk behind a writer: it fills up, fails, hangs, loses written bytes, and reports renames wrongly."""

from __future__ import annotations

import asyncio
import enum
import errno
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.virtual_loop import VirtualLoop, run_step
from tests.simulation.world import World
from tests.support.invariants import Invariants, Rows
from updraft_writer.pieces import Piece
from updraft_writer.sinks.sink import InDoubtError, is_published


class DiskFault(enum.Enum):
    """Faults that the disk applies to the next step of any file."""

    TRANSIENT = "transient"
    LOSS = "loss"
    """A sync reports once that bytes were lost."""
    RENAMED_IN_DOUBT = "renamed in doubt"
    """A rename takes effect but reports an error."""
    NOT_RENAMED_IN_DOUBT = "not renamed in doubt"
    """A rename fails with an error, and the next lookup of the new name fails too."""
    HANG = "hang"
    """A step never returns."""


class Disk:
    """Disk of all writers, which keeps published files."""

    def __init__(self, world: World, invariants: Invariants) -> None:
        self.world = world
        self.invariants = invariants
        self.room_bytes = 1 << 40
        self.files: dict[str, bytes] = {}
        """Published files."""
        self.faults: list[DiskFault] = []

    def takes(self, fault: DiskFault) -> bool:
        """Return whether this fault is due. If it is, clear the fault so that it happens once."""
        if fault in self.faults:
            self.faults.remove(fault)
            self.world.note("disk", fault.value)
            return True
        return False


class SimulatedStorage:
    """File on the disk, hidden until it is published."""

    def __init__(self, disk: Disk, path: str, described: Callable[[bytes], Sequence[Rows]]) -> None:
        """Create a file; `described` returns the rows that a published file contains."""
        self._disk = disk
        self._path = path
        self._described = described
        self._hidden: bytearray | None = None
        self._has_failed = False
        self._is_complete = False
        self._doubt: OSError | None = None

    def open(self) -> None:
        self._maybe_transient()
        self._hidden = bytearray()

    def write(self, piece: Piece) -> None:
        assert self._hidden is not None
        if len(piece) > self._disk.room_bytes:
            self._has_failed = True
            raise OSError(errno.ENOSPC, "no space left on device")
        self._disk.room_bytes -= len(piece)
        self._hidden += piece

    def complete(self) -> None:
        if self._disk.takes(DiskFault.LOSS):
            self._has_failed = True
            raise OSError(errno.EIO, "lost bytes")
        self._is_complete = True

    def publish(self) -> None:
        self._maybe_transient()
        if self._has_failed or not self._is_complete:
            self._disk.invariants.fail(f"{self._path} is published after a failed write, or before it is complete")
        if self._doubt is not None and is_published(self._look, self._doubt):
            return
        if self._disk.takes(DiskFault.RENAMED_IN_DOUBT):
            self._rename()
            self._doubt = OSError(errno.EIO, "no reply")
            raise InDoubtError("its names cannot be looked up", self._doubt)
        if self._disk.takes(DiskFault.NOT_RENAMED_IN_DOUBT):
            self._doubt = OSError(errno.EIO, "no reply")
            raise InDoubtError("its names cannot be looked up", self._doubt)
        self._rename()

    def discard(self) -> None:
        if self._hidden is not None:
            self._disk.room_bytes += len(self._hidden)
            self._hidden = None

    def _rename(self) -> None:
        if self._hidden is None:
            self._disk.invariants.fail(f"{self._path} is published twice by one storage")
            return
        content, self._hidden = bytes(self._hidden), None
        # If a task did not learn that its empty file was published, the task may request the file again.
        if self._disk.files.get(self._path) != content:
            self._disk.files[self._path] = content
            self._disk.invariants.published(self._path, self._described(content))

    def _look(self) -> tuple[bool, bool]:
        return self._path in self._disk.files, self._hidden is not None

    def _maybe_transient(self) -> None:
        if self._disk.takes(DiskFault.TRANSIENT):
            raise OSError(errno.EAGAIN, "try again")


class SimulatedThreads:
    """Executor whose steps take a simulated time. A step of a disk may hang."""

    def __init__(self, world: World, mean_seconds: float, disk: Disk | None = None) -> None:
        self.mean_seconds = mean_seconds
        self._world = world
        self._disk = disk

    def run(self, _loop: VirtualLoop, done: asyncio.Future[Any], step: Callable[[], Any]) -> None:
        """Run a step after its simulated time, or never."""
        if self._disk is not None and self._disk.takes(DiskFault.HANG):
            # Wait longer than the bound on a storage's silence.
            self._world.later(150.0, lambda: run_step(done, step))
            return
        self._world.later(self._world.seconds(self.mean_seconds), lambda: run_step(done, step))
