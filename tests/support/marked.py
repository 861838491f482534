# SPDX-License-Identifier: Apache-2.0
"""Processes that have inherited a value in their environment. Their parents may have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil

MARK = "UPDRAFT_TEST_MARK"
"""Variable with the value."""


def marked(mark: str) -> Sequence[psutil.Process]:
    """Return the processes that run with this value in MARK."""
    found = []
    for process in psutil.process_iter():
        # A zombie's environment cannot be read.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found
