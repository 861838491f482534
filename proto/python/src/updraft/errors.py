# SPDX-License-Identifier: Apache-2.0
"""Errors that cross the wire, as one tree. Each error has a kind, which travels in-band, and a gRPC status code.

    UpdraftError
     +- UserError                the function raised an exception
     +- WorkerError              the worker died or was killed while it served the call
     +- ProtocolError            the client broke the protocol
     +- LimitError               a message or batch exceeds a limit
     +- FunctionNotFoundError    the pool has no such function
     +- FunctionRefusedError     the pool's settings do not allow the function
     |   +- ActionRefusedError   the service's settings do not allow the action; never in-band
     +- FunctionLoadError        a registered function cannot be loaded
     +- VersionMismatchError     client and pool differ in the version of Python, pyspark or the protocol
     +- PoolFullError            the queue is full; has a retry hint
     +- PoolBusyError            no worker is free, and the client asked to be refused in that case
     +- PoolUnavailableError     the service is draining, has no worker or is unreachable
     +- DeadlineError            the call's deadline or a time limit of the service has passed
     +- UnauthenticatedError     the call has no token, or a wrong one
     +- PermissionDeniedError    the caller's identity does not permit the request
     +- InternalError            a defect of the service
     +- QuotaError               the writer's quota had no room in time; has a retry hint
     +- SinkError                the storage failed; the message says whether the file was published
     +- WriteRefusedError        the writer's settings do not allow the path or the delivery
     +- WriteOptionError         the writer does not support the format, codec, option or type
     +- EncodeError              the data cannot be encoded as requested

Workers raise and serialize these errors too, so this module must not import gRPC: a status code is a string here.
"""

from typing import ClassVar

from updraft.v1.exchange_pb2 import Error, ErrorKind

MAX_LINE_BYTES = 1024
MAX_STATUS_MESSAGE_BYTES = 2 * 1024
"""Limit of a status message. Percent-encoding may triple its length, and Java clients read only 8 KiB of trailers."""
MAX_MESSAGE_BYTES = 64 * 1024
MAX_TRACEBACK_BYTES = 1024 * 1024


class UpdraftError(Exception):
    """Base class of the tree; only its subclasses are raised.

    `message` says what happened, to which function or task, and what to do. `exception_class`, `traceback` and
    `sequence` (the number of the request batch, 0 if there was none) describe the exception that a function raised;
    `traceback_truncated` says whether the start of the traceback was cut off. `retry_after_milliseconds` is the time to
    wait before a retry, 0 for errors without a retry hint.
    """

    kind: ClassVar[ErrorKind]
    code: ClassVar[str]

    def __init_subclass__(cls, *, kind: ErrorKind, code: str) -> None:
        """Set the kind and the status code of a class; `code` is the name of a gRPC status code."""
        super().__init_subclass__()
        cls.kind, cls.code = kind, code

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
        """Return the in-band form, with at most 64 KiB of the message's start and 1 MiB of the traceback's end."""
        traceback, truncated = keep_end(self.traceback, MAX_TRACEBACK_BYTES)
        return Error(
            kind=self.kind,
            message=keep_start(self.message, MAX_MESSAGE_BYTES),
            exception_class=keep_start(self.exception_class, MAX_LINE_BYTES),
            traceback=traceback,
            traceback_truncated=self.traceback_truncated or truncated,
            sequence=self.sequence,
        )

    def status_message(self) -> str:
        """Return the gRPC status message: the start of the message, line breaks included, at most 2 KiB."""
        lines = (line.rstrip() for line in self.message.strip().splitlines())
        return keep_start("\n".join(lines), MAX_STATUS_MESSAGE_BYTES)

    def first_line(self) -> str:
        """Return the first line of the message, at most 1 KiB. Use it for logs, which every operator may read."""
        return keep_start(next(iter(self.message.strip().splitlines()), ""), MAX_LINE_BYTES)


class UserError(UpdraftError, kind=ErrorKind.ERROR_KIND_USER, code="UNKNOWN"):
    """Raised when the function raised an exception; a retry would fail in the same way."""


class WorkerError(UpdraftError, kind=ErrorKind.ERROR_KIND_WORKER, code="ABORTED"):
    """Raised when a worker died or was killed while it served the call; another worker may succeed."""


class ProtocolError(UpdraftError, kind=ErrorKind.ERROR_KIND_PROTOCOL, code="INVALID_ARGUMENT"):
    """Raised when a client broke the protocol or sent something that is not Arrow."""


class LimitError(UpdraftError, kind=ErrorKind.ERROR_KIND_LIMIT, code="INVALID_ARGUMENT"):
    """Raised when a message or batch exceeds a limit of the service."""


class FunctionNotFoundError(UpdraftError, kind=ErrorKind.ERROR_KIND_FUNCTION_NOT_FOUND, code="NOT_FOUND"):
    """Raised when the pool has no function of the requested name and version."""


class FunctionRefusedError(UpdraftError, kind=ErrorKind.ERROR_KIND_FUNCTION_REFUSED, code="PERMISSION_DENIED"):
    """Raised when the pool's settings do not allow the function."""


class ActionRefusedError(FunctionRefusedError, kind=FunctionRefusedError.kind, code=FunctionRefusedError.code):
    """Raised when the service's settings do not allow an action.

    The error is sent only as a status, so it shares the kind of FunctionRefusedError.
    """


class FunctionLoadError(UpdraftError, kind=ErrorKind.ERROR_KIND_FUNCTION_LOAD, code="FAILED_PRECONDITION"):
    """Raised when a registered function cannot be loaded: its module, its constructor or its model process fails."""


class VersionMismatchError(UpdraftError, kind=ErrorKind.ERROR_KIND_VERSION, code="FAILED_PRECONDITION"):
    """Raised when client and pool differ in the version of Python, pyspark or the protocol."""


class PoolFullError(UpdraftError, kind=ErrorKind.ERROR_KIND_POOL_FULL, code="RESOURCE_EXHAUSTED"):
    """Raised when the queue is full; has a retry hint."""


class PoolBusyError(UpdraftError, kind=ErrorKind.ERROR_KIND_POOL_BUSY, code="RESOURCE_EXHAUSTED"):
    """Raised when no worker is free, and the client asked to be refused in that case."""


class PoolUnavailableError(UpdraftError, kind=ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, code="UNAVAILABLE"):
    """Raised when the service is draining, has no worker or is unreachable; another service may do the work."""


class DeadlineError(UpdraftError, kind=ErrorKind.ERROR_KIND_DEADLINE, code="DEADLINE_EXCEEDED"):
    """Raised when the call's deadline has passed, or the service's time limit for a batch or for silence."""


class UnauthenticatedError(UpdraftError, kind=ErrorKind.ERROR_KIND_UNAUTHENTICATED, code="UNAUTHENTICATED"):
    """Raised when a call has no token, or a wrong token."""


class PermissionDeniedError(UpdraftError, kind=ErrorKind.ERROR_KIND_PERMISSION_DENIED, code="PERMISSION_DENIED"):
    """Raised when the caller's identity does not permit the request, at all or for this tenant."""


class InternalError(UpdraftError, kind=ErrorKind.ERROR_KIND_INTERNAL, code="INTERNAL"):
    """Raised when the service has a defect; its log has the details."""


class QuotaError(UpdraftError, kind=ErrorKind.ERROR_KIND_QUOTA, code="RESOURCE_EXHAUSTED"):
    """Raised when the quota had no room for a file or batch in time; has a retry hint."""


class SinkError(UpdraftError, kind=ErrorKind.ERROR_KIND_SINK, code="ABORTED"):
    """Raised when the storage failed; the message says whether the file was published."""


class WriteRefusedError(UpdraftError, kind=ErrorKind.ERROR_KIND_WRITE_REFUSED, code="PERMISSION_DENIED"):
    """Raised when the writer's settings do not allow the path or the delivery."""


class WriteOptionError(UpdraftError, kind=ErrorKind.ERROR_KIND_WRITE_OPTION, code="INVALID_ARGUMENT"):
    """Raised when the writer does not support the format, codec, option or type."""


class EncodeError(UpdraftError, kind=ErrorKind.ERROR_KIND_ENCODE, code="INVALID_ARGUMENT"):
    """Raised when the data cannot be encoded as requested."""


_BY_KIND: dict[int, type[UpdraftError]] = {subclass.kind: subclass for subclass in UpdraftError.__subclasses__()}


def error_from_message(error: Error) -> UpdraftError:
    """Return the exception for an in-band error; a kind that this version does not know becomes an InternalError.

    Cut the error's texts as `UpdraftError.to_message` does, because the sender may be hostile.
    """
    traceback, truncated = keep_end(error.traceback, MAX_TRACEBACK_BYTES)
    return _BY_KIND.get(error.kind, InternalError)(
        keep_start(error.message, MAX_MESSAGE_BYTES),
        exception_class=keep_start(error.exception_class, MAX_LINE_BYTES),
        traceback=traceback,
        traceback_truncated=error.traceback_truncated or truncated,
        sequence=error.sequence,
    )


def keep_start(text: str, limit_bytes: int) -> str:
    """Return the start of a text, at most `limit_bytes` as UTF-8, ending with three dots if it was cut."""
    # Users' messages may have any length, and may contain lone surrogates, which neither protobuf nor gRPC can carry.
    encoded = text[: limit_bytes + 1].encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    return encoded[: limit_bytes - 3].decode("utf-8", "ignore") + "..."


def keep_end(text: str, limit_bytes: int) -> tuple[str, bool]:
    """Return the end of `text`, at most `limit_bytes` as UTF-8, and whether anything was cut off.

    Use it for tracebacks, because their last line names the error.
    """
    encoded = text[-limit_bytes - 1 :].encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode(), False
    return encoded[len(encoded) - limit_bytes :].decode("utf-8", "ignore"), True
