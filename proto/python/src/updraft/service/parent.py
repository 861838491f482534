# SPDX-License-Identifier: Apache-2.0
"""How a process of a service ends with the supervisor that started it, and a supervisor with the program that did."""

import ctypes
import os
import select
import signal
import sys

_VARIABLE = "UPDRAFT_PARENT"
_PR_SET_PDEATHSIG = 1
_STDIN = 0


def parent_environment() -> dict[str, str]:
    """What tells a child who started it."""
    return {_VARIABLE: str(os.getpid())}


def follow_parent() -> None:
    """Let the kernel kill this process when the supervisor dies, and receive the signals that the supervisor blocks.

    The child does this itself, first of all: code that runs between fork and exec would make `subprocess` call fork,
    whose handlers (gRPC has some) may end the child, rather than vfork.
    """
    supervisor = int(os.environ.pop(_VARIABLE))
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("updraft: the kernel cannot end this process with its supervisor")
    if os.getppid() != supervisor:
        sys.exit("updraft: the supervisor is gone")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def stdin_has_ended() -> bool:
    """Whether nobody holds the other end of standard input any more; it does not wait, and reads nothing."""
    waiting = select.poll()
    # A pipe or a socket that was closed is said without being asked for, and a descriptor that is not open too.
    waiting.register(_STDIN, 0)
    return bool(waiting.poll(0))
