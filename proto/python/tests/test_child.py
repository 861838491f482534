# SPDX-License-Identifier: Apache-2.0
"""Supervisor's notice of a child's end, and its description of it."""

import os
import signal

import pytest

from updraft.service.child import Child, describe_exit


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        # Only the first and the last real-time signal have names.
        (-signal.SIGRTMIN - 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_an_exit_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words


def test_a_child_that_is_killed_as_it_ends_is_left_to_who_reaps() -> None:
    child = Child("abc", os.environ)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.kill()
    pid, status = os.waitpid(child.pid, 0)
    child.reaped(os.waitstatus_to_exitcode(status))
    assert (pid, os.waitstatus_to_exitcode(status)) == (child.pid, 0)
