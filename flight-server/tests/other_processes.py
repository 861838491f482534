# SPDX-License-Identifier: Apache-2.0
"""Processes that the test did not start itself and that may end at any time."""

import time
from collections.abc import Callable, Iterable

import psutil

# Reached only if something hangs.
HANG_SECONDS = 60.0


def eventually(condition: Callable[[], object]) -> None:
    """Poll until the condition holds. Other processes cause it and send no event."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < HANG_SECONDS
        time.sleep(0.01)


def lives(process: psutil.Process) -> bool:
    """Return whether the process is still running, not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def named(processes: Iterable[psutil.Process], name: str) -> list[psutil.Process]:
    """Return the processes whose names contain this text, without processes that have ended."""
    return [process for process in processes if name in _name_of(process)]


def _name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
