# SPDX-License-Identifier: Apache-2.0
"""What a zygote loads, in memory that it shares with its supervisor: read where that hangs, or has ended the zygote."""

import contextlib
import os
from collections.abc import Iterator

from updraft_server.ipc.load import MOST_BYTES, Load

NOTE_VARIABLE = "UPDRAFT_ZYGOTE_NOTE"


class LoadingNote:
    """Of one zygote; empty while it runs no code of an author."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of the memory."""
        self.descriptor = descriptor
        # Modules of functions may start programs.
        os.set_inheritable(descriptor, False)  # noqa: FBT003

    @classmethod
    def made(cls) -> "LoadingNote":
        """A new one; raises OSError."""
        return cls(os.memfd_create("updraft-loading"))

    @classmethod
    def inherited(cls) -> "LoadingNote":
        """The one that this process was started with."""
        return cls(int(os.environ.pop(NOTE_VARIABLE)))

    @contextlib.contextmanager
    def of(self, load: Load) -> Iterator[None]:
        """Say that this code runs in the block."""
        self._write(load.encode())
        try:
            yield
        finally:
            self._write(b"")

    def read(self) -> Load | None:
        """What runs now, or ran when the zygote ended; None if nothing does."""
        try:
            return Load.decode(os.pread(self.descriptor, MOST_BYTES + 1, 0))
        except ValueError:
            # Empty, or being written.
            return None

    def close(self) -> None:
        """Let go of the memory."""
        os.close(self.descriptor)

    def _write(self, data: bytes) -> None:
        # Best effort: without a note, a death is told without its cause.
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, data, 0)
