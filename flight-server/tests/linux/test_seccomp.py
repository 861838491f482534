# SPDX-License-Identifier: Apache-2.0
"""Calls that a filter refuses fail with the error it names; other calls work, in children too."""

import ctypes
import errno
import functools
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from updraft_server.linux import seccomp, system_calls
from updraft_server.linux.process_control import forbid_new_privileges

LIBC = ctypes.CDLL(None, use_errno=True)
KCMP = system_calls.call_number("kcmp")


def kcmp(kind: int, half: int = 0) -> int:
    """Return the errno of comparing this process's resources with themselves; 0 means they are equal."""
    ctypes.set_errno(0)
    me = ctypes.c_long(os.getpid())
    assert KCMP is not None
    LIBC.syscall(ctypes.c_long(KCMP), me, me, ctypes.c_long(kind), ctypes.c_ulong(half), ctypes.c_ulong(0))
    return ctypes.get_errno()


def in_a_child(rules: list[seccomp.Rule], act: Callable[[], int], **values: int) -> int:
    """Return the result of `act` in a child process with a filter of these rules."""
    child = os.fork()
    if child == 0:
        try:
            forbid_new_privileges()
            seccomp.install(seccomp.Filter(rules).filled(**values))
            os._exit(act())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_filter_refuses_its_calls_to_programs_that_children_run_too() -> None:
    code = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); me = os.getpid()"
    command = [sys.executable, "-c", f"{code}; c.syscall({KCMP}, me, me, 2, 0, 0); print(ctypes.get_errno())"]
    assert subprocess.check_output(command) == b"0\n"
    rules = [seccomp.Rule("kcmp", errno.EXDEV)]
    assert in_a_child(rules, lambda: int(subprocess.check_output(command))) == errno.EXDEV


@pytest.mark.parametrize(
    ("when", "refused", "allowed"),
    [
        ([seccomp.equals(2, 2)], 2, 3),
        ([seccomp.differs(2, 2)], 3, 2),
        ([seccomp.has_any_bit(2, 0b101)], 4, 2),
        ([seccomp.equals(2, 2, mask=0b110)], 3, 4),
        ([seccomp.differs(2, 2), seccomp.differs(2, 4)], 3, 2),
        ([seccomp.equals(2, "named")], 2, 3),
    ],
)
def test_arguments_decide(when: list[seccomp.Test], refused: int, allowed: int) -> None:
    rules = [seccomp.Rule("kcmp", errno.EXDEV, when)]
    assert (kcmp(refused), kcmp(allowed)) == (0, 0)
    assert in_a_child(rules, lambda: kcmp(refused), named=2) == errno.EXDEV
    assert in_a_child(rules, lambda: kcmp(allowed), named=2) == 0


@pytest.mark.parametrize("pointer", [1, 1 << 32])
def test_both_halves_of_a_pointer_are_looked_at(pointer: int) -> None:
    rules = [seccomp.Rule("kcmp", errno.EXDEV, when) for when in seccomp.is_pointer(3)]
    assert in_a_child(rules, lambda: kcmp(2, pointer)) == errno.EXDEV
    assert in_a_child(rules, lambda: kcmp(2, 0)) == 0


def test_each_rule_of_a_call_has_its_own_error() -> None:
    rules = [
        seccomp.Rule("kcmp", errno.EXDEV, [seccomp.equals(2, 2)]),
        seccomp.Rule("acct", errno.ENOSYS),
        seccomp.Rule("kcmp", errno.ENODEV, [seccomp.equals(2, 3)]),
    ]
    errors = [in_a_child(rules, functools.partial(kcmp, kind)) for kind in (2, 3, 4)]
    assert errors == [errno.EXDEV, errno.ENODEV, 0]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has another ABI under the same architecture")
def test_calls_by_the_numbers_of_the_x32_abi_are_refused() -> None:
    def getpid_of_x32() -> int:
        ctypes.set_errno(0)
        LIBC.syscall(0x40000000 | 39)
        return ctypes.get_errno()

    assert in_a_child([], getpid_of_x32) == errno.ENOSYS


def test_a_call_that_nobody_knows_is_an_error_at_once() -> None:
    with pytest.raises(KeyError):
        seccomp.Filter([seccomp.Rule("no_such_call", errno.EPERM)])


def test_a_process_knows_whether_it_has_a_filter() -> None:
    assert not seccomp.is_filtered()
    assert in_a_child([], seccomp.is_filtered) == 1
