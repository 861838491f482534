# SPDX-License-Identifier: Apache-2.0
"""A process of the pool and the supervisor that started it."""

import os
import signal
import subprocess
import sys

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
