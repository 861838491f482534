# SPDX-License-Identifier: Apache-2.0
"""What every sink is: bytes under a name that nobody reads, published as a whole or not at all."""

import errno
from typing import Protocol

from updraft.errors import SinkError

# What may go away by itself; everything else (no space, no permission, no such bucket) fails again.
_TRANSIENT = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETUNREACH,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)


class Sink(Protocol):
    """One file's way out. After an error nothing but `discard` is called."""

    async def open(self) -> None:
        """Make the hidden file; raises SinkError."""

    async def write(self, piece: bytes) -> None:
        """Append a piece; returns when it is stored. Raises SinkError."""

    async def publish(self) -> None:
        """Give the file its final name; raises SinkError, and then the final name is as it was."""

    async def discard(self) -> None:
        """Remove what is there of the hidden file; says so in the log when it cannot."""


class Storage(Protocol):
    """A sink that blocks, one step at a time.

    Every step may be repeated after it failed with a transient error: it then does the same again, or raises SinkError.
    """

    def open(self) -> None:
        """Make the hidden file."""

    def write(self, piece: bytes) -> None:
        """Append a piece."""

    def publish(self) -> None:
        """Give the file its final name."""

    def discard(self) -> None:
        """Remove the hidden file."""


def is_transient(error: OSError) -> bool:
    """Whether the same step may succeed a moment later."""
    return error.errno in _TRANSIENT


def sink_error(step: str, path: str, error: OSError) -> SinkError:
    """The error that a client gets for a step that failed."""
    reason = error.strerror or " ".join(str(error).split())
    return SinkError(f"cannot {step} {path}: {reason}; nothing was published")


def hidden_name(name: str, unique: str) -> str:
    """The name that a file has until it is published: Spark and Hadoop skip what begins with a dot or an underscore."""
    return f"._{name}.{unique}.updraft"
