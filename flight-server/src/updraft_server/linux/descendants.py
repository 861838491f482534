# SPDX-License-Identifier: Apache-2.0
"""Children of this process, adopted ones included, and how to kill them.

A child keeps its number until it is reaped, so only code that reaps may act on the numbers given here.
"""

import contextlib
import os
import signal
from pathlib import Path

from updraft_server.linux.process_trees import parents


def children() -> list[int]:
    """Return the children of this process, zombies included, whichever of its threads has started them."""
    try:
        lists = [(thread / "children").read_text() for thread in Path("/proc/self/task").iterdir()]
        return [int(pid) for pid in " ".join(lists).split()]
    except OSError:
        # The kernel was built without that file.
        own = os.getpid()
        return [pid for pid, parent in parents().items() if parent == own]


def kill_child(pid: int) -> None:
    """Send SIGKILL to a child that has not been reaped; ignored if the child runs as another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
