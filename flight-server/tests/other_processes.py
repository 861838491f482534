# SPDX-License-Identifier: Apache-2.0
"""Processes that a test has not started itself: they come and go while it looks."""

import time
from collections.abc import Callable, Iterable

import psutil

# Only a hang reaches it.
HANG_SECONDS = 60.0


def eventually(condition: Callable[[], object]) -> None:
    """Ask again until it is so: other processes bring it about, and nothing here could wake us."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < HANG_SECONDS
        time.sleep(0.01)


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended yet, reaped or not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def named(processes: Iterable[psutil.Process], name: str) -> list[psutil.Process]:
    """Those with this in their name; one that has been reaped meanwhile has none."""
    return [process for process in processes if name in _name_of(process)]


def _name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
