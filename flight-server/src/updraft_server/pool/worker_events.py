# SPDX-License-Identifier: Apache-2.0
"""Events of a pool's workers."""

import dataclasses
import re
from typing import NamedTuple

from updraft.service.child import describe_exit

# One frame in the output of `faulthandler`, which writes the innermost frame first.
_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,9}) in (?P<function>.{1,100})$', re.MULTILINE
)
_LIBRARY = re.compile(r"/lib/python3[^/]*/(?!site-packages/)")


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerDeath:
    """End of a worker process."""

    status: int | None = None
    """Exit code, or minus the signal that ended it; None if unknown."""
    stack: str = ""
    """Stacks at the time of the crash, as Python wrote them."""

    @property
    def signal(self) -> int | None:
        """Signal that ended the worker; None if no signal did, or if the end is unknown."""
        return -self.status if self.status is not None and self.status < 0 else None

    @property
    def place(self) -> str:
        """Return the innermost frame outside Python's own library, such as "crash (/work/f.py:3)"; empty if unknown."""
        frames = list(_FRAME.finditer(self.stack))
        found = next((frame for frame in frames if not _LIBRARY.search(frame["file"])), next(iter(frames), None))
        return f"{found['function']} ({found['file']}:{found['line']})" if found else ""

    def __str__(self) -> str:
        """Return the end in words: "was killed by SIGSEGV", "exited with code 3"."""
        return "ended" if self.status is None else describe_exit(self.status)


class Reader(NamedTuple):
    """Caller that may read what an exchange prints (`updraft_server.front.status.readers`)."""

    identity: str
    tenant: str | None
    """Tenant of the identity; None if callers with this identity name their tenant themselves."""
    proof: str
    """Name that only this caller can prove, or the digest of its secret."""


class LogContext(dict[str, str]):
    """Function and task of an exchange, for the log lines of its worker's output."""

    readers: frozenset[Reader] = frozenset()
    """Callers who may read the output; empty for output that belongs to no single exchange."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOutput:
    """Line that a worker printed or logged."""

    worker: str
    """Id of the worker."""
    line: str
    context: LogContext
    """`Lease.log_context` of the exchange that the worker held when the line was read; empty when it held none."""


@dataclasses.dataclass(frozen=True, slots=True)
class DroppedOutput:
    """Output that the front read from a worker and dropped, because its exchange had exceeded the limit."""

    worker: str
    """Id of the worker."""
    lines: int
    bytes: int
    context: LogContext
    """Log context, as in `WorkerOutput`."""
