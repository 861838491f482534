# SPDX-License-Identifier: Apache-2.0
"""Keeps a child that an author's code forks, and that returns from that code, from going on as its parent does."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """End a child that is forked in the block and comes back from it: the parent alone goes on."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(1)
