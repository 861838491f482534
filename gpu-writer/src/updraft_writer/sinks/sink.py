# SPDX-License-Identifier: Apache-2.0
"""What every sink is: bytes under a name that nobody reads, published as a whole or not at all.

A storage does one step at a time and blocks; `stored` runs it. Which steps may be repeated is decided here alone.
"""

import enum
import errno
from typing import Protocol

from updraft.errors import SinkError

# What may pass by itself; everything else (no space, no permission, no such bucket) fails again.
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


class Step(enum.Enum):
    """A step of a storage, as errors name it."""

    CREATE = "create"
    WRITE = "write"
    COMPLETE = "complete"
    PUBLISH = "publish"
    DISCARD = "remove the unfinished"


# CREATE has stored nothing that could be lost. PUBLISH renames what is complete. DISCARD removes
# whatever is there. WRITE and COMPLETE are not here: a write, a sync or a close may report that *earlier* bytes were
# lost. They report it once; the same call then succeeds, and the bytes are gone.
_REPEATABLE = frozenset({Step.CREATE, Step.PUBLISH, Step.DISCARD})


class Standing(enum.Enum):
    """What became of a file when one of its steps failed, as errors say it."""

    UNPUBLISHED = "nothing was published"
    UNSYNCED = "the file has its name, but a crash of the storage's machine may still lose it"


class LostError(OSError):
    """Raised when a storage has lost something, or may have, and will not say so again: final in every step."""

    def __init__(self, message: str, cause: OSError, standing: Standing = Standing.UNPUBLISHED) -> None:
        super().__init__(cause.errno, f"{message}: {cause.strerror or cause}")
        self.standing = standing


class Sink(Protocol):
    """One file's way out. After an error nothing but `discard` is called."""

    async def open(self) -> None:
        """Make the hidden file; raises SinkError."""

    async def write(self, piece: bytes) -> None:
        """Append a piece; returns when the storage has taken it. Raises SinkError."""

    async def publish(self) -> None:
        """Complete the file and give it its final name; raises SinkError, whose message says what is there now."""

    async def discard(self) -> None:
        """Remove what is there of the hidden file; says so in the log when it cannot."""


class Storage(Protocol):
    """A sink that blocks, one step at a time.

    A step raises OSError when it failed and changed nothing that is published; `may_be_repeated` then decides whether
    it is called again.
    """

    def open(self) -> None:
        """Make the hidden file; raises LostError when a directory above it may not survive a crash."""

    def write(self, piece: bytes) -> None:
        """Append a piece."""

    def complete(self) -> None:
        """End the hidden file: afterwards every byte is stored, and the storage said so for the last time."""

    def publish(self) -> None:
        """Give the file its final name; raises LostError too."""

    def discard(self) -> None:
        """Remove the hidden file; whatever is published stays."""


def may_be_repeated(step: Step, error: OSError) -> bool:
    """Whether calling the step again is safe and may succeed."""
    return not isinstance(error, LostError) and step in _REPEATABLE and error.errno in _TRANSIENT


def sink_error(step: Step, path: str, error: OSError) -> SinkError:
    """The error that a client gets for a step that failed."""
    standing = error.standing if isinstance(error, LostError) else Standing.UNPUBLISHED
    reason = error.strerror or " ".join(str(error).split())
    return SinkError(f"cannot {step.value} {path}: {reason}; {standing.value}")


def hidden_name(name: str, unique: str) -> str:
    """The name that a file has until it is published: Spark and Hadoop skip what begins with a dot or an underscore."""
    return f"._{name}.{unique}.updraft"
