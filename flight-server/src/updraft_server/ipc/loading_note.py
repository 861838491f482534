# SPDX-License-Identifier: Apache-2.0
"""Progress of a zygote's load, in memory that it shares with its supervisor.

The supervisor reads it to name the code that hangs or has ended the zygote. A finished load leaves its faults there,
and the supervisor compares them with the faults of the zygote that serves.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping

from updraft_server.ipc.load import MOST_BYTES, Load

NOTE_VARIABLE = "UPDRAFT_ZYGOTE_NOTE"
_MOST_FAULTS = 100
_LONGEST_NAME = 200
_LONGEST_FAULT = 400


class LoadingNote:
    """Note of one zygote; empty while it runs no code of an author."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of the memory."""
        self.descriptor = descriptor
        # Function modules may start programs, which must not inherit it.
        os.set_inheritable(descriptor, False)  # noqa: FBT003

    @classmethod
    def made(cls) -> "LoadingNote":
        """Return a new note; raises OSError."""
        return cls(os.memfd_create("updraft-loading"))

    @classmethod
    def inherited(cls) -> "LoadingNote":
        """Return the note that this process was started with."""
        return cls(int(os.environ.pop(NOTE_VARIABLE)))

    @contextlib.contextmanager
    def of(self, load: Load) -> Iterator[None]:
        """Record that this code runs in the block."""
        self._write(load.encode())
        try:
            yield
        finally:
            self._write(b"")

    def read(self) -> Load | None:
        """Return the load that runs now, or that ran when the zygote ended; None between loads."""
        try:
            return Load.decode(os.pread(self.descriptor, MOST_BYTES + 1, 0))
        except ValueError:
            # Empty, or being written.
            return None

    def finish(self, faults: Mapping[str, str]) -> None:
        """Record the end of the load with the first hundred faults, by the names of modules and functions."""
        first = list(faults.items())[:_MOST_FAULTS]
        kept = {name[:_LONGEST_NAME]: fault[:_LONGEST_FAULT] for name, fault in first}
        self._write(json.dumps({"faults": kept}).encode())

    def read_faults(self) -> Mapping[str, str]:
        """Return the faults that `finish` has recorded; empty before."""
        try:
            data = os.pread(self.descriptor, 8 * MOST_BYTES, 0)
            return {str(name): str(fault) for name, fault in json.loads(data)["faults"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # The zygote runs code of authors, which could write here.
            return {}

    def close(self) -> None:
        """Close the memory."""
        os.close(self.descriptor)

    def _write(self, data: bytes) -> None:
        # Best effort: without a note, a death is reported without its cause.
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, data, 0)
