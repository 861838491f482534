# SPDX-License-Identifier: Apache-2.0
"""CPU time of whole process trees, with what their ended children had used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time of each root, its live descendants, and every descendant that was waited for.

    A root below another root is counted once.
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
        # It ended just now: its parent counts it from here on.
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
