# SPDX-License-Identifier: Apache-2.0
"""Order in which the kernel kills processes when memory runs out: forks of this process before the process itself."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_FORKS_ABOVE = 500
_MOST = 1000


def die_first() -> None:
    """Make the kernel kill this process, when memory runs out, before the process that started it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FORKS_ABOVE))


class OutOfMemoryScore:
    """Open descriptor of this process's oom_score_adj: once memory is hidden, an ordinary user cannot open it any more.

    A fork starts with the score of its parent and could not open its own either.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._own = 0
        # Some kernels and container runtimes do not have it.
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR)
            self._own = int(os.read(self._descriptor, 16))

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Make the kernel kill processes forked in the block before this one; the forks may leave the block too."""
        self._write(min(self._own + _FORKS_ABOVE, _MOST))
        try:
            yield
        finally:
            # In a forked child too, this writes to the parent's file, which is the open one.
            self._write(self._own)

    def _write(self, score: int) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, b"%d" % score, 0)
