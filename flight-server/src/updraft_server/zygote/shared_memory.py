# SPDX-License-Identifier: Apache-2.0
"""Removes what session functions have left in a /dev/shm that all workers of a pool share.

The kernel does not say who made a file. What nobody has open to write or mapped is taken for left behind, since whoever
shares memory has it mapped. Workers of registered functions keep theirs so, and so does what modules of functions have
started.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from updraft_server.sandbox_layers import SHARED_MEMORY_PATH


def remove_unused_files(directory: Path = Path(SHARED_MEMORY_PATH)) -> None:
    """Remove the plain files that nobody uses."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    _remove_unused(entry.path)


def _remove_unused(path: str) -> None:
    """Remove a file that nobody has open to write, as whoever maps shared memory has; raises OSError otherwise."""
    # A pipe that has taken its place is not waited for.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The kernel gives it for a file that nobody writes to, and lets nobody begin to while it is held.
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        Path(path).unlink()
    finally:
        os.close(file)
