# SPDX-License-Identifier: Apache-2.0
"""Usage of a worker and every process that it has started: measured by the zygote, kept by the front."""

from typing import NamedTuple


class WorkerUsage(NamedTuple):
    """One measurement of a worker."""

    memory_bytes: int
    """Resident memory of its processes; a page that several share counts in each."""
    processor_mark: str
    """Mark that differs from the previous one if a process began, ended or used CPU time in between."""
    own_bytes: int = 0
    """Anonymous and shared memory of its processes, above that of a freshly forked worker.

    This is an upper bound, since a page that a process shares with those that it forked counts in each.
    """
    processes: int = 1
    """Number of processes: the worker itself, and what it has started."""
    processor_seconds: float = 0.0
    """CPU time of the living processes, and of ended ones that they have waited for."""
    threads: int = 1
    """Threads of all its processes together."""
    container_bytes: int | None = None
    """Anonymous and shared memory of everything in the container or machine, each page once; None if unknown."""
    scratch_bytes: int = 0
    """Size of its scratch directory on the disk at the last measurement."""
    scratch_files: int = 0
    """Number of entries of all kinds in it."""
    scratch_room_bytes: int | None = None
    """Free bytes on the volume of all scratch directories; None if unknown."""
