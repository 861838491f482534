# SPDX-License-Identifier: Apache-2.0
"""Files of this machine, also on a mounted volume."""

import os
from pathlib import Path
from uuid import uuid4

from updraft_writer.sinks.sink import hidden_name


class LocalStorage:
    """Writes at an offset, so that a step that failed halfway can simply be done again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hidden = path.with_name(hidden_name(path.name, uuid4().hex))
        self._descriptor: int | None = None
        self._offset = 0

    def open(self) -> None:
        """Make the hidden file, and the directories above it as Hadoop does; raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._close()
        self._descriptor = os.open(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, piece: bytes) -> None:
        """Append a piece; raises OSError."""
        assert self._descriptor is not None, "written before opened"
        rest = memoryview(piece)
        offset = self._offset
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        # Only now: a piece that failed halfway is written again from its beginning.
        self._offset = offset

    def publish(self) -> None:
        """Rename to the final name, in one step for whoever looks; raises OSError."""
        # Closing is where network file systems tell that writing has failed.
        self._close()
        self._hidden.replace(self._path)

    def discard(self) -> None:
        """Remove the hidden file; raises OSError."""
        self._close()
        self._hidden.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
