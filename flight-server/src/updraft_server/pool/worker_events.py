# SPDX-License-Identifier: Apache-2.0
"""What a pool tells about its workers."""

import dataclasses
import signal as signals


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerDeath:
    """How a worker process ended; both are None when nobody could say."""

    exit_code: int | None = None
    signal: int | None = None
    stack: str = ""
    """Where Python was when it crashed, in its own words."""

    def __str__(self) -> str:
        """In words: "was killed by SIGSEGV", "exited with code 3"."""
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        if self.exit_code is not None:
            return f"exited with code {self.exit_code}"
        return "ended"


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


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
