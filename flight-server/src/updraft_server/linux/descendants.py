# SPDX-License-Identifier: Apache-2.0
"""The children of this process, those that it adopted among them, and their end.

A child that has not been reaped keeps its number: only whoever reaps may act on the numbers given here.
"""

import contextlib
import os
import signal
from pathlib import Path

from updraft_server.linux.process_trees import parents


def children() -> list[int]:
    """The processes whose parent this one is, zombies included, whichever of its threads has started them."""
    try:
        lists = [(thread / "children").read_text() for thread in Path("/proc/self/task").iterdir()]
        return [int(pid) for pid in " ".join(lists).split()]
    except OSError:
        # The kernel was built without that file.
        own = os.getpid()
        return [pid for pid, parent in parents().items() if parent == own]


def kill_child(pid: int) -> None:
    """Send SIGKILL to a child that has not been reaped. One that runs as somebody else may not be ours to kill."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
