# SPDX-License-Identifier: Apache-2.0
"""How a process of the pool ends with the supervisor that started it."""

import os
import signal
import sys

from updraft_server.linux.process_control import end_with_parent

_VARIABLE = "UPDRAFT_PARENT"


def parent_environment() -> dict[str, str]:
    """What tells a child who started it."""
    return {_VARIABLE: str(os.getpid())}


def follow_parent() -> None:
    """Let the kernel kill this process when the supervisor dies, and receive the signals that the supervisor blocks.

    The child does this itself, first of all: code that runs between fork and exec would make `subprocess` call fork,
    whose handlers (gRPC has some) may end the child, rather than vfork.
    """
    supervisor = int(os.environ.pop(_VARIABLE))
    end_with_parent()
    if os.getppid() != supervisor:
        sys.exit("updraft-server: the supervisor is gone")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
