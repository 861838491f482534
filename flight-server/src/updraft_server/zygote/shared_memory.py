# SPDX-License-Identifier: Apache-2.0
"""Removal of files that session functions have left in a /dev/shm shared by all workers of a pool.

The kernel does not say who made a file. A file that no process has mapped or open for writing counts as left behind,
since processes that share memory have it mapped. So files stay while workers of registered functions, or processes that
function modules have started, use them.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from updraft_server.sandbox_layers import SHARED_MEMORY_PATH


def remove_unused_files(directory: Path = Path(SHARED_MEMORY_PATH)) -> None:
    """Remove the plain files that no process uses."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    _remove_unused(entry.path)


def _remove_unused(path: str) -> None:
    """Remove a file; raises OSError if a process has it open for writing, as mapped shared memory is."""
    # O_NONBLOCK, so that a pipe in its place does not block.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The kernel grants a read lease only if no process has the file open for writing, and keeps new writers out
        # while the lease is held.
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        Path(path).unlink()
    finally:
        os.close(file)
