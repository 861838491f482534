# SPDX-License-Identifier: Apache-2.0
"""The one tree of errors that cross the wire, and the one table that maps them to kinds and gRPC codes.

    UpdraftError
     +- UserError                the function raised an exception
     +- WorkerError              the worker died or was killed while it held the exchange
     +- ProtocolError            the client broke the protocol
     +- LimitError               a message or batch is beyond the limits
     +- FunctionNotFoundError    no such function
     +- FunctionRefusedError     the pool does not accept such functions
     |   +- ActionRefusedError   the service does not accept such an action; never in-band
     +- VersionMismatchError     another Python, pyspark or protocol version than the pool's
     +- PoolFullError            the queue is full; says when to come again
     +- PoolUnavailableError     the pool drains or has no worker; no work was done
     +- DeadlineError            the call's deadline or the batch's time limit ran out
     +- UnauthenticatedError     no token, or a wrong one
     +- InternalError            a defect of the service
     +- QuotaError               the writer had no room in time; says when to come again
     +- SinkError                the storage failed; its message says whether anything was published
     +- WriteRefusedError        the writer's settings do not allow the path or the delivery
     +- WriteOptionError         a format, codec or option that the writer does not have
     +- EncodeError              the data cannot be encoded as asked

Workers raise and serialize these too, so this module must not import gRPC: a code is known here by its name.
"""

from typing import ClassVar

from updraft.v1.exchange_pb2 import Error, ErrorKind

MAX_STATUS_MESSAGE_BYTES = 1024
MAX_MESSAGE_BYTES = 64 * 1024
MAX_TRACEBACK_BYTES = 1024 * 1024


class UpdraftError(Exception):
    """Base of the tree; never raised itself.

    `message` says what happened, to which function or task, and what to do. `exception_class`, `traceback` and
    `sequence` (the request batch; 0 when there was none) describe what a function raised; `traceback_truncated` says
    that the start of the traceback was lost on the way here.
    """

    kind: ClassVar[ErrorKind]
    code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        exception_class: str = "",
        traceback: str = "",
        traceback_truncated: bool = False,
        sequence: int = 0,
        retry_after_milliseconds: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exception_class = exception_class
        self.traceback = traceback
        self.traceback_truncated = traceback_truncated
        self.sequence = sequence
        self.retry_after_milliseconds = retry_after_milliseconds

    def to_message(self) -> Error:
        """The in-band form: the traceback cut to its last MiB, the message to its first."""
        traceback, truncated = keep_end(self.traceback, MAX_TRACEBACK_BYTES)
        return Error(
            kind=self.kind,
            message=keep_start(self.message, MAX_MESSAGE_BYTES),
            exception_class=keep_start(self.exception_class, MAX_STATUS_MESSAGE_BYTES),
            traceback=traceback,
            traceback_truncated=self.traceback_truncated or truncated,
            sequence=self.sequence,
        )

    def status_message(self) -> str:
        """The gRPC status message: one line of at most 1 KiB."""
        line = " ".join(self.message.split())
        return keep_start(line, MAX_STATUS_MESSAGE_BYTES)


class UserError(UpdraftError):
    """Raised when the function raised an exception; a retry gives the same."""

    kind = ErrorKind.ERROR_KIND_USER
    code = "UNKNOWN"


class WorkerError(UpdraftError):
    """Raised when a worker died or was killed while it held the exchange; another worker may succeed."""

    kind = ErrorKind.ERROR_KIND_WORKER
    code = "ABORTED"


class ProtocolError(UpdraftError):
    """Raised when a client broke the protocol or sent what is not Arrow."""

    kind = ErrorKind.ERROR_KIND_PROTOCOL
    code = "INVALID_ARGUMENT"


class LimitError(UpdraftError):
    """Raised when a message, batch or traceback is beyond the pool's limits."""

    kind = ErrorKind.ERROR_KIND_LIMIT
    code = "INVALID_ARGUMENT"


class FunctionNotFoundError(UpdraftError):
    """Raised when no function has the name and version asked for."""

    kind = ErrorKind.ERROR_KIND_FUNCTION_NOT_FOUND
    code = "NOT_FOUND"


class FunctionRefusedError(UpdraftError):
    """Raised when the pool's settings do not allow the function."""

    kind = ErrorKind.ERROR_KIND_FUNCTION_REFUSED
    code = "PERMISSION_DENIED"


class ActionRefusedError(FunctionRefusedError):
    """Raised when the service's settings do not allow an action: a status alone, so it has no kind of its own."""


class VersionMismatchError(UpdraftError):
    """Raised when client and pool differ in the version of the protocol, of Python or of pyspark."""

    kind = ErrorKind.ERROR_KIND_VERSION
    code = "FAILED_PRECONDITION"


class PoolFullError(UpdraftError):
    """Raised when the queue is full; `retry_after_milliseconds` says when to come again."""

    kind = ErrorKind.ERROR_KIND_POOL_FULL
    code = "RESOURCE_EXHAUSTED"


class PoolUnavailableError(UpdraftError):
    """Raised when the pool drains or has no worker, before any work was done."""

    kind = ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
    code = "UNAVAILABLE"


class DeadlineError(UpdraftError):
    """Raised when the call's deadline or a batch's time limit ran out."""

    kind = ErrorKind.ERROR_KIND_DEADLINE
    code = "DEADLINE_EXCEEDED"


class UnauthenticatedError(UpdraftError):
    """Raised when a call has no token, or a wrong one."""

    kind = ErrorKind.ERROR_KIND_UNAUTHENTICATED
    code = "UNAUTHENTICATED"


class InternalError(UpdraftError):
    """Raised when the service itself is at fault."""

    kind = ErrorKind.ERROR_KIND_INTERNAL
    code = "INTERNAL"


class QuotaError(UpdraftError):
    """Raised when a batch was not let in within the time limit; `retry_after_milliseconds` says when to come again."""

    kind = ErrorKind.ERROR_KIND_QUOTA
    code = "RESOURCE_EXHAUSTED"


class SinkError(UpdraftError):
    """Raised when the storage failed; the message says what became of the file, mostly that nothing was published."""

    kind = ErrorKind.ERROR_KIND_SINK
    code = "ABORTED"


class WriteRefusedError(UpdraftError):
    """Raised when the writer's settings do not allow the path or the delivery."""

    kind = ErrorKind.ERROR_KIND_WRITE_REFUSED
    code = "PERMISSION_DENIED"


class WriteOptionError(UpdraftError):
    """Raised when a format, codec, option or type is one that the writer does not have."""

    kind = ErrorKind.ERROR_KIND_WRITE_OPTION
    code = "INVALID_ARGUMENT"


class EncodeError(UpdraftError):
    """Raised when the data cannot be encoded as asked."""

    kind = ErrorKind.ERROR_KIND_ENCODE
    code = "INVALID_ARGUMENT"


_BY_KIND: dict[int, type[UpdraftError]] = {subclass.kind: subclass for subclass in UpdraftError.__subclasses__()}


def error_from_message(error: Error) -> UpdraftError:
    """The exception for an in-band error; a kind that this version does not know becomes InternalError."""
    return _BY_KIND.get(error.kind, InternalError)(
        error.message,
        exception_class=error.exception_class,
        traceback=error.traceback,
        traceback_truncated=error.traceback_truncated,
        sequence=error.sequence,
    )


def keep_start(text: str, limit_bytes: int) -> str:
    """The start of a text, at most `limit_bytes` as UTF-8; three dots stand for what was cut."""
    # What users raise may hold lone surrogates, which neither protobuf nor gRPC can carry.
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    return encoded[: limit_bytes - 3].decode("utf-8", "ignore") + "..."


def keep_end(text: str, limit_bytes: int) -> tuple[str, bool]:
    """The end of a text, at most `limit_bytes` as UTF-8, and whether anything was cut: Python names the error there."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode(), False
    return encoded[len(encoded) - limit_bytes :].decode("utf-8", "ignore"), True
