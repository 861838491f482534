# SPDX-License-Identifier: Apache-2.0
"""A process of the pool and the supervisor that started it."""

import os
import signal
import subprocess
import sys

import pytest

from updraft.service.parent import parent_environment

_FOLLOWS = "import signal; from updraft.service.parent import follow_parent; follow_parent();"


def _run(program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


def test_a_child_whose_supervisor_is_gone_does_not_go_on() -> None:
    ended = _run(f"{_FOLLOWS} print('went on')", {"UPDRAFT_PARENT": "1"})
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "the supervisor is gone" in ended.stderr


def test_a_child_receives_the_signals_that_its_supervisor_blocks() -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        ended = _run(f"{_FOLLOWS} print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))", parent_environment())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert (ended.returncode, ended.stdout) == (0, "set()\n"), ended.stderr


@pytest.mark.parametrize(("held", "ended"), [(True, False), (False, True)])
def test_standard_input_ends_with_the_last_process_that_holds_its_other_end(held: bool, ended: bool) -> None:
    program = "from updraft.service.parent import stdin_has_ended; print(stdin_has_ended())"
    theirs, ours = os.pipe()
    if not held:
        os.close(ours)
    asked = subprocess.run([sys.executable, "-c", program], stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(theirs)
    if held:
        os.close(ours)
    assert asked.stdout == f"{ended}\n", asked.stderr
