# SPDX-License-Identifier: Apache-2.0
"""Parent-death handling: a process ends with its supervisor, and a supervisor ends with the program that started it."""

import ctypes
import os
import select
import signal
import sys

_VARIABLE = "UPDRAFT_PARENT"
_PR_SET_PDEATHSIG = 1
_STDIN = 0


def parent_environment() -> dict[str, str]:
    """Return the environment variable that tells a child its parent's process id."""
    return {_VARIABLE: str(os.getpid())}


def follow_parent() -> None:
    """Let the kernel kill this process when the supervisor dies, and unblock the signals that the supervisor blocks.

    A child calls this first. If the supervisor made these calls between fork and exec, `subprocess` would use fork
    instead of vfork, and fork handlers such as gRPC's could end the child.
    """
    supervisor = int(os.environ.pop(_VARIABLE))
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("updraft: the kernel cannot end this process with its supervisor")
    if os.getppid() != supervisor:
        sys.exit("updraft: the supervisor is gone")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def stdin_has_ended() -> bool:
    """Return whether the other end of standard input is closed, without waiting or reading."""
    waiting = select.poll()
    # poll() reports a closed pipe or socket, and an invalid descriptor, even if no events are requested.
    waiting.register(_STDIN, 0)
    return bool(waiting.poll(0))
