# SPDX-License-Identifier: Apache-2.0
"""Which process the kernel kills when memory runs out: the forks of this one before this one itself."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_FORKS_ABOVE = 500
_MOST = 1000


def die_first() -> None:
    """Be what the kernel kills when memory runs out, rather than the process that started this one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FORKS_ABOVE))


class OutOfMemoryScore:
    """This process's oom_score_adj, held open: once its memory is hidden, an ordinary user cannot open it any more.

    A fork starts with the score of its parent and could not open its own either.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._own = 0
        # A kernel or a container runtime may not have it.
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR)
            self._own = int(os.read(self._descriptor, 16))

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Processes forked in the block are killed before this one; they may leave the block like their parent."""
        self._write(min(self._own + _FORKS_ABOVE, _MOST))
        try:
            yield
        finally:
            # In the child too this is the parent's score.
            self._write(self._own)

    def _write(self, score: int) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, b"%d" % score, 0)
