# SPDX-License-Identifier: Apache-2.0
"""Bounded waits for other processes. If a wait exceeds its bound, the error names the event that did not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01
# Only a hang takes this long, even on a busy machine: tests check what happens, not how long it takes.
HANG_SECONDS = 60.0


def until(what: str, probe: Callable[[], T | None], *, timeout_seconds: float = HANG_SECONDS) -> T:
    """Call `probe` until its result is true; the TimeoutError says `what` did not happen."""
    deadline = time.monotonic() + timeout_seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_seconds} s")
        time.sleep(_POLL_SECONDS)
    return answer
