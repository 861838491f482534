# SPDX-License-Identifier: Apache-2.0
"""Children of this process, including adopted ones: how to list, kill and reap them.

A child keeps its process id until it is reaped. So only the code that reaps children may use the ids returned here.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from updraft_server.linux.process_control import kill_group
from updraft_server.linux.process_trees import parents


def children() -> list[int]:
    """Return the children that any thread of this process has started or adopted, including zombies."""
    try:
        lists = [(thread / "children").read_text() for thread in Path("/proc/self/task").iterdir()]
        return [int(pid) for pid in " ".join(lists).split()]
    except OSError:
        # This kernel was built without the file `children`.
        own = os.getpid()
        return [pid for pid, parent in parents().items() if parent == own]


def kill_child(pid: int) -> None:
    """Send SIGKILL to a child that has not been reaped. Do nothing if the child runs as another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def next_ended() -> int | None:
    """Return a child that has ended and is not reaped yet, or None."""
    return _ended_of(os.P_ALL, 0)


def has_ended(pid: int) -> bool:
    """Return whether this child has ended and is not reaped yet."""
    return _ended_of(os.P_PID, pid) is not None


def reap(pid: int) -> int:
    """End the process group of a child that has ended, and reap the child.

    Returns:
        The child's exit code, or the negative number of the signal that ended it.
    """
    # The child is not reaped yet, so its process id still names its own group.
    kill_group(pid)
    _, wait_status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(wait_status)


def kill(pids: Iterable[int]) -> None:
    """Kill children, each with its group."""
    for pid in pids:
        kill_group(pid)
        # Also kill the child directly, because a daemon may be in a group whose leader has ended.
        kill_child(pid)


def _ended_of(kind: int, which: int) -> int | None:
    try:
        ended = os.waitid(kind, which, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None
