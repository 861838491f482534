# SPDX-License-Identifier: Apache-2.0
"""Interface of sinks. A sink stores bytes under a hidden name and publishes them as a whole or not at all.

A `Storage` blocks and runs one step at a time; `stored` runs its steps on threads. This module decides which steps may
be repeated.
"""

import enum
import errno
from collections.abc import Callable
from typing import Protocol

from updraft.errors import SinkError
from updraft_writer.pieces import Piece

# libhdfs's errno for every Java exception without a specific errno, from a refused connection to an exceeded quota.
# pyarrow does not distinguish these exceptions, so this module does not treat this errno as temporary.
_LIBHDFS_UNKNOWN = 255

# Errors that may be temporary. All other errors (no space, no permission, no such bucket) would occur again.
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
    """Storage operation. Its value is its name in error messages."""

    CREATE = "create"
    WRITE = "write"
    COMPLETE = "complete"
    PUBLISH = "publish"
    DISCARD = "remove the unfinished"


# Steps that are safe to repeat. A failed CREATE has stored nothing that could be lost. PUBLISH checks whether the last
# attempt took effect. DISCARD removes whatever exists. WRITE and COMPLETE are excluded: a write, a sync or a close may
# report that *earlier* bytes were lost, but only once. A repeated call would succeed although the bytes are gone.
_REPEATABLE = frozenset({Step.CREATE, Step.PUBLISH, Step.DISCARD})


class Standing(enum.Enum):
    """State of a file after a failed step. The error's message ends with this value."""

    UNPUBLISHED = "nothing was published"
    UNKNOWN = "whether the file was published is not known"
    ASIDE = "nothing was published, and the existing file may still have its hidden name"
    UNSYNCED = "the file has its name, but a crash of the storage's machine may still lose it"


class LostError(OSError):
    """Raised if a storage may have lost bytes and will not report the loss again. The step is never repeated."""

    def __init__(self, message: str, cause: OSError, standing: Standing = Standing.UNPUBLISHED) -> None:
        super().__init__(cause.errno, f"{message}: {cause.strerror or cause}")
        self.standing = standing


class InDoubtError(OSError):
    """Raised if it is unknown whether the file has its final name. The next attempt to publish checks again."""

    standing = Standing.UNKNOWN

    def __init__(self, message: str, cause: OSError) -> None:
        super().__init__(cause.errno, f"{message}: {cause.strerror or cause}")


class AsideError(OSError):
    """Raised if a file was not published and the file that it should have replaced still has a hidden name."""

    standing = Standing.ASIDE

    def __init__(self, hidden: str, cause: OSError) -> None:
        super().__init__(cause.errno, f"{cause.strerror or cause}; the existing file was renamed to {hidden}")


class Sink(Protocol):
    """Destination of one file's bytes. After an error, only `discard` may be called."""

    async def open(self) -> None:
        """Create the hidden file; raises SinkError."""

    async def write(self, piece: Piece) -> None:
        """Append a piece; return when the storage has accepted it. Raises SinkError."""

    async def publish(self) -> None:
        """Complete the file and give it its final name; raises SinkError, whose message says what is at the path."""

    async def discard(self) -> None:
        """Remove the hidden file, or log that it could not be removed."""


class Storage(Protocol):
    """Blocking counterpart of a sink; it runs one step at a time.

    A step raises OSError if it failed without changing anything published. `may_be_repeated` then decides whether the
    step is called again.
    """

    def open(self) -> None:
        """Create the hidden file; raises LostError if a directory above the file may not survive a crash."""

    def write(self, piece: Piece) -> None:
        """Append a piece."""

    def complete(self) -> None:
        """Complete the hidden file; return when the storage has confirmed every byte."""

    def publish(self) -> None:
        """Give the file its final name; also raises LostError and InDoubtError."""

    def discard(self) -> None:
        """Remove the hidden file. A published file stays."""


def is_published(look: Callable[[], tuple[bool, bool]], doubt: OSError | None) -> bool:
    """Return whether a file has its final name after a rename that failed with `doubt`; raises InDoubtError if unknown.

    `look` returns two flags: whether the file has its final name, and whether it has its hidden name. `look` raises
    OSError if the storage does not answer.
    """
    try:
        has_final_name, has_hidden_name = look()
    except OSError as error:
        raise InDoubtError("its names cannot be looked up", error) from error
    if not has_final_name and not has_hidden_name:
        assert doubt is not None, "looked up before renamed"
        message = "the file has neither its hidden nor its final name: somebody else removed or replaced it"
        raise InDoubtError(message, doubt)
    return has_final_name


def may_be_repeated(step: Step, error: OSError) -> bool:
    """Return whether calling the step again is safe and may succeed."""
    match error:
        case LostError():
            return False
        case InDoubtError():
            return True
        case _:
            return step in _REPEATABLE and error.errno in _TRANSIENT


def sink_error(step: Step, path: str, error: OSError) -> SinkError:
    """Return the error that the client receives for a failed step."""
    standing = error.standing if isinstance(error, LostError | InDoubtError | AsideError) else Standing.UNPUBLISHED
    return SinkError(f"cannot {step.value} {path}: {reason_of(error)}; {standing.value}")


def reason_of(error: OSError) -> str:
    """Return the reason for a storage's failure in one line."""
    reason = error.strerror or " ".join(str(error).split())
    if error.errno == _LIBHDFS_UNKNOWN:
        return f"{reason} (libhdfs has written the Java exception to the writer's stderr)"
    return reason


def hidden_name(name: str, unique: str, *, in_table: bool = False) -> str:
    """Return the name that a file has until it is published.

    Outside tables, the name begins with a dot and an underscore, because Spark and Hadoop skip such names. Table
    formats read only files that their log lists, so in a table a hidden file needs no such name. Table formats would
    also skip such names when they remove unused files. So in a table the hidden name begins like the file's own name.
    """
    return f"{'' if in_table else '._'}{name}.{unique}.updraft"
