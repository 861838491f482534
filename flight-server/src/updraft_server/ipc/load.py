# SPDX-License-Identifier: Apache-2.0
"""Load: an author's code that must run before functions can be called, with its time limit and a note of its progress.

The note is in memory that a zygote shares with its supervisor. If the code hangs or crashes the zygote, the supervisor
reads in the note which code was running. After all loads, the zygote writes the faults of the loads into the note, and
the supervisor compares these faults with the faults of the serving zygote.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping

MOST_BYTES = 64 * 1024
"""Largest encoded load. Processes that read loads parse no more, because authors' code may have written the data."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Import of a module of functions, or constructor of one of its functions."""

    module: str
    function: str = ""
    """Empty for the import of the module."""
    version: str = ""
    limit_seconds: float = dataclasses.field(default=0.0, compare=False)
    """Time limit; 0 means no limit."""

    def fault(self, reason: str) -> str:
        """Return the fault of the module or function if this load has failed for this reason."""
        if self.function:
            return f"function {self.function!r} cannot be loaded: {reason}"
        return f"the module {self.module!r} of --functions cannot be imported: {reason}"

    @property
    def lateness(self) -> str:
        """Reason of the failure if the load has exceeded its time limit."""
        own = "load_timeout_seconds of the function, or " if self.function else ""
        return f"it did not load within {self.limit_seconds:g} seconds ({own}--load-timeout-seconds of the pool)"

    def __str__(self) -> str:
        """Return the load's name in a sentence."""
        return f"function {self.function!r} of the module {self.module!r}" if self.function else f"{self.module!r}"

    def encode(self) -> bytes:
        """Return the load as bytes."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Load":
        """Return the load in `data`; raises ValueError."""
        if len(data) > MOST_BYTES:
            raise ValueError(f"a load of {len(data)} bytes, the limit is {MOST_BYTES}")
        try:
            fields = json.loads(data)
            module, function, version = (str(fields[name]) for name in ("module", "function", "version"))
            return cls(module, function, version, float(fields["limit_seconds"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a load: {error}") from None


NOTE_VARIABLE = "UPDRAFT_ZYGOTE_NOTE"
_MOST_FAULTS = 100
_LONGEST_NAME = 200
_LONGEST_FAULT = 400


class LoadingNote:
    """Note about the load of one zygote; empty while the zygote runs no author's code."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of the memory."""
        self.descriptor = descriptor
        # Function modules may start programs, which must not inherit the descriptor.
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
        """Record that the code of this load runs in the block."""
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
        """Return the faults that `finish` has recorded; empty before `finish` is called."""
        try:
            data = os.pread(self.descriptor, 8 * MOST_BYTES, 0)
            return {str(name): str(fault) for name, fault in json.loads(data)["faults"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # The zygote runs authors' code, which could overwrite the note.
            return {}

    def close(self) -> None:
        """Close the memory."""
        os.close(self.descriptor)

    def _write(self, data: bytes) -> None:
        # Best effort: without a note, a death is reported without its cause.
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, data, 0)
