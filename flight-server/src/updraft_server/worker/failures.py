# SPDX-License-Identifier: Apache-2.0
"""Why an exchange fails in a worker, as the message that the client gets.

The mapping of kinds to gRPC codes is the front's (`updraft.errors`): a worker must never import gRPC.

    WorkerFailure
     +-- UserFailure       the function raised, or did not keep to its contract
     +-- ProtocolFailure   the client broke the protocol, or sent what is not Arrow
     +-- LimitFailure      a message beyond a limit
     +-- VersionFailure    another Python, pyspark or protocol version
     +-- RefusedFailure    this pool does not run such functions
     +-- NotFoundFailure   no such function
     +-- InternalFailure   a defect of the pool
"""

import traceback as tracebacks
from typing import ClassVar

from updraft.v1 import exchange_pb2

MAX_MESSAGE_CHARACTERS = 1000


class WorkerFailure(Exception):  # noqa: N818 - an outcome of an exchange, beside what is an error in this process
    """Raised to end an exchange with an error; the kind says whose fault it is."""

    kind: ClassVar[exchange_pb2.ErrorKind] = exchange_pb2.ERROR_KIND_INTERNAL

    def __init__(self, message: str, *, exception_class: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exception_class = exception_class
        self.traceback = traceback

    def to_message(self, *, sequence: int, max_traceback_bytes: int) -> exchange_pb2.Error:
        """The error as it travels; `sequence` is the request batch at hand, 0 for none."""
        kept, truncated = keep_end(self.traceback, max_traceback_bytes)
        return exchange_pb2.Error(
            kind=self.kind,
            message=one_line(self.message),
            exception_class=self.exception_class,
            traceback=kept,
            traceback_truncated=truncated,
            sequence=sequence,
        )


class UserFailure(WorkerFailure):
    """Raised when the function raised an exception or did not keep to its contract."""

    kind = exchange_pb2.ERROR_KIND_USER


class ProtocolFailure(WorkerFailure):
    """Raised when the client broke the protocol."""

    kind = exchange_pb2.ERROR_KIND_PROTOCOL


class LimitFailure(WorkerFailure):
    """Raised when a message is larger than allowed."""

    kind = exchange_pb2.ERROR_KIND_LIMIT


class VersionFailure(WorkerFailure):
    """Raised when the client's Python, pyspark or protocol is not the pool's."""

    kind = exchange_pb2.ERROR_KIND_VERSION


class RefusedFailure(WorkerFailure):
    """Raised when the pool's settings do not allow the function."""

    kind = exchange_pb2.ERROR_KIND_FUNCTION_REFUSED


class NotFoundFailure(WorkerFailure):
    """Raised when no function has the name and version."""

    kind = exchange_pb2.ERROR_KIND_FUNCTION_NOT_FOUND


class InternalFailure(WorkerFailure):
    """Raised for a defect of the pool itself."""


def user_failure(error: BaseException) -> UserFailure:
    """What a registered function raised."""
    return UserFailure(
        describe(error),
        exception_class=qualified_name(error),
        traceback="".join(tracebacks.format_exception(error)),
    )


def describe(error: BaseException) -> str:
    """An exception in one line: its class and its message."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<its message could not be read: {type(broken).__name__}>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def qualified_name(error: BaseException) -> str:
    """The class of an exception with its module, as tracebacks name it."""
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def one_line(text: str) -> str:
    """The first line, cut to what a status message may hold."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else line[: MAX_MESSAGE_CHARACTERS - 3] + "..."


def keep_end(text: str, max_bytes: int) -> tuple[str, bool]:
    """The last `max_bytes` of a text as UTF-8, and whether anything was cut: Python names the error at the end."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= max_bytes:
        return data.decode(), False
    return data[len(data) - max_bytes :].decode("utf-8", "ignore"), True
