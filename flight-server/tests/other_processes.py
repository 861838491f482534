# SPDX-License-Identifier: Apache-2.0
"""Processes that a test did not start itself; they come and go while it looks."""

import time
from collections.abc import Callable, Iterable

import psutil

# Reached only if something hangs.
HANG_SECONDS = 60.0


def eventually(condition: Callable[[], object]) -> None:
    """Poll until the condition holds: other processes cause it, so there is no event to wait for."""
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
    """Return the processes with this in their name; a reaped process has no name."""
    return [process for process in processes if name in _name_of(process)]


def _name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
