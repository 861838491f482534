# SPDX-License-Identifier: Apache-2.0
"""What a pool tells about its workers."""

import dataclasses

from updraft.service.child import describe_exit


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerDeath:
    """How a worker process ended."""

    status: int | None = None
    """Its exit code, or less than zero the signal that ended it; None when nobody could say."""
    stack: str = ""
    """Where Python was when it crashed, in its own words."""

    @property
    def signal(self) -> int | None:
        """The signal that ended it; None where none did or nobody could say."""
        return -self.status if self.status is not None and self.status < 0 else None

    def __str__(self) -> str:
        """In words: "was killed by SIGSEGV", "exited with code 3"."""
        return "ended" if self.status is None else describe_exit(self.status)


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOutput:
    """A line that a worker printed or logged."""

    worker: str
    """Its id."""
    line: str
    context: dict[str, str]
    """`Lease.log_context` of the exchange that the worker held when the line was read; empty when it held none."""


@dataclasses.dataclass(frozen=True, slots=True)
class DroppedOutput:
    """Output of a worker that was read and forgotten: more than an exchange may have logged."""

    worker: str
    """Its id."""
    lines: int
    bytes: int
    context: dict[str, str]
    """As that of `WorkerOutput`."""
