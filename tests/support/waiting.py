# SPDX-License-Identifier: Apache-2.0
"""Bounded waits on what other processes do; the bound is a failure with words, never a silent pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01
# Only a hang reaches it, on a busy machine too: a test fails by what happens, not by how long it takes.
HANG_SECONDS = 60.0


def until(what: str, probe: Callable[[], T | None], *, timeout_seconds: float = HANG_SECONDS) -> T:
    """Ask `probe` until it answers with something true; TimeoutError names `what` was waited for."""
    deadline = time.monotonic() + timeout_seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_seconds} s")
        time.sleep(_POLL_SECONDS)
    return answer
