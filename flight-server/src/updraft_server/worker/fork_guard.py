# SPDX-License-Identifier: Apache-2.0
"""Guard against forks in an author's code: a child process must not return from that code into ours."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """End any child process that is forked in the block and leaves the block; only the parent goes on."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(1)
