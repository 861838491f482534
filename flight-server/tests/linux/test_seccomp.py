# SPDX-License-Identifier: Apache-2.0
"""Calls that a filter refuses fail with the error it names; others go on, in children as well."""

import errno
import os
import subprocess

from updraft_server.linux import seccomp

_KCMP = {"x86_64": 312, "aarch64": 272}
_CALL = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); me = os.getpid(); "
_CALL += "r = c.syscall({}, me, me, 2, 0, 0); print(ctypes.get_errno() if r else 0)"


def test_a_filter_refuses_its_calls_to_children_too() -> None:
    number = _KCMP[os.uname().machine]
    command = ["python3", "-c", _CALL.format(number)]
    assert subprocess.check_output(command) == b"0\n"
    program = seccomp.refusing({number: errno.EXDEV})
    child = os.fork()
    if child == 0:
        try:
            seccomp.install(program)
            os._exit(int(subprocess.check_output(command)))
        finally:
            os._exit(255)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EXDEV
