# SPDX-License-Identifier: Apache-2.0
"""Removes what session functions have left in a /dev/shm that all workers of a pool share.

The kernel does not say who made a file. What is older than every session function that runs has been left behind by one
that has ended, unless somebody has it open to write or mapped: what registered functions use, and what a worker keeps
for its next exchange.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from updraft_server.sandbox_layers import SHARED_MEMORY_PATH


def remove_left_behind(before_seconds: float, directory: Path = Path(SHARED_MEMORY_PATH)) -> None:
    """Remove the files that nobody has written to or renamed since, by the wall clock, and that nobody uses."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if found.st_ctime < before_seconds and stat.S_ISREG(found.st_mode):
                    _remove_unused(entry.path)


def _remove_unused(path: str) -> None:
    """Remove a file that nobody has open to write to, as whoever maps shared memory has; raises OSError otherwise."""
    # A pipe that has taken its place is not waited for.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The kernel gives it for a file that nobody writes to, and lets nobody begin to while it is held.
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        Path(path).unlink()
    finally:
        os.close(file)
