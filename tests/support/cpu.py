# SPDX-License-Identifier: Apache-2.0
"""CPU time of whole process trees, ended children included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return user and system time of each root, its live descendants, and every descendant that was waited for.

    If one root is a descendant of another root, its time counts once.
    """
    processes = set[psutil.Process]()
    for pid in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            processes.update([root, *root.children(recursive=True)])
    return sum(map(_own_seconds, processes))


def _own_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        # The process has just ended. Its parent's times now include it.
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
