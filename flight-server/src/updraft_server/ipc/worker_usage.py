# SPDX-License-Identifier: Apache-2.0
"""What a worker uses, with every process that it has started: measured by the zygote, kept by the front."""

from typing import NamedTuple


class WorkerUsage(NamedTuple):
    """One measurement."""

    memory_bytes: int
    """Resident memory of its processes; a page that several share counts in each."""
    processor_mark: str
    """Differs from the one before if a process began, ended or used processor time in between."""
    own_bytes: int = 0
    """Anonymous and shared memory of its processes, above what a worker that was just forked has: as much as they can
    hold at most, since a page that a process shares with those that it forked counts in each."""
    processes: int = 1
    """The worker itself, and what it has started."""
    processor_seconds: float = 0.0
    """Used by the processes that live, and by ended ones that they have waited for."""
    threads: int = 1
    """Of all its processes together."""
    container_bytes: int | None = None
    """Anonymous and shared memory of everything in the container or machine, each page once; None: not known."""
    scratch_bytes: int = 0
    """What its scratch directory took on the disk when that was measured last."""
    scratch_files: int = 0
    """Entries of all kinds in it."""
    scratch_room_bytes: int | None = None
    """Free bytes on the volume of all scratch directories; None: unknown."""
