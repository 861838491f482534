# SPDX-License-Identifier: Apache-2.0
"""System calls in a child of the test, with and without a worker's sandbox.

Arguments are chosen so that a call does no harm if it is allowed.
"""

import ctypes
import os
from collections.abc import Callable

import pytest

from updraft_server.linux.system_calls import call_number
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.sandbox_layers import CAPABILITIES, SECCOMP

LIBC = ctypes.CDLL(None, use_errno=True)
SANDBOX = WorkerSandbox()

needs_filters = pytest.mark.skipif(
    not all(layer.is_on for layer in SANDBOX.layers if layer.name in (SECCOMP, CAPABILITIES)),
    reason="this kernel has no filters, or this user capabilities",
)

NOWHERE = 1
"""Pointer to unmapped memory."""


def error_of(call: str, *arguments: int) -> int:
    """Return the errno of a call, 0 for success."""
    ctypes.set_errno(0)
    number = call_number(call)
    assert number is not None
    result = LIBC.syscall(*map(ctypes.c_long, (number, *arguments)))
    return ctypes.get_errno() if result < 0 else 0


def in_a_child(act: Callable[[], int], *, sandboxed: WorkerSandbox | None) -> int:
    """Return the result of `act` in a child of this process, which acts as the child's zygote."""
    child = os.fork()
    if child == 0:
        try:
            # Some calls change the terminal.
            os.setsid()
            if sandboxed is not None:
                sandboxed.enter(os.getpid())
            os._exit(act())
        except OSError as error:
            os._exit(error.errno or 255)
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(act: Callable[[], int], error: int) -> bool:
    """Return whether the sandbox refuses the call; skip if the kernel refuses it without the sandbox too."""
    assert in_a_child(act, sandboxed=SANDBOX) == error
    if in_a_child(act, sandboxed=None) == error:
        pytest.skip("the kernel or this user's rights refuse it without the filter too")
    return True
