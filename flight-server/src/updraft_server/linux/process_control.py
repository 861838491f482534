# SPDX-License-Identifier: Apache-2.0
"""Process controls of Linux that Python's library does not wrap."""

import contextlib
import fcntl
import os
import resource
import signal

from updraft_server.linux.system_calls import checked, libc

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_F_SETSIG = 10


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """Undo `end_with_parent`.

    If this process is stopped when its parent dies, the kernel continues it, so that it can notice the parent's death.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def end_group_with(pipe: int) -> int:
    """Let the kernel kill this process's group when the last writer closes `pipe`. Return a descriptor to keep open.

    This needs no thread and no Python code, so it also ends a process that is busy in a function. The kernel stores the
    receiver of the signal in the open file, which forked processes share. So this function opens the pipe again.
    """
    own = os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(own, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    return own


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be reaped."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Hide this process's memory and environment from other processes of the same user. An exec undoes this."""
    _prctl(_PR_SET_DUMPABLE, 0)


def is_memory_hidden() -> bool:
    """Return whether this process's memory is hidden from other processes of the same user."""
    return bool(libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 1)


def forbid_new_privileges() -> None:
    """Keep execs of this process or its children from gaining privileges by setuid bits or file capabilities."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def name_process(name: str) -> None:
    """Set the name of this process in process lists. The kernel keeps the first 15 characters."""
    libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def no_core_dumps() -> None:
    """Disable core dumps: a crash of user code leaves no file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def kill_group(leader_pid: int) -> None:
    """Kill a process group, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    checked(libc.prctl(option, value, 0, 0, 0), f"prctl({option})")
