# SPDX-License-Identifier: Apache-2.0
"""Common parts of every service's exchanges: opening messages, tenant, deadline and error reporting.

Each service parses its own command: `updraft_server.front.request`, `updraft_writer.request`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn, Protocol, TypeAlias, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from updraft.errors import DeadlineError, LimitError, ProtocolError, VersionMismatchError
from updraft.flight_data import FlightFields, join_flight_data, split_flight_data
from updraft.protocol import PROTOCOL_VERSION, TENANT_HEADER
from updraft.service.audit import CallRecord
from updraft.service.identity import Identity
from updraft.service.telemetry import shortened
from updraft.v1.exchange_pb2 import RequestMetadata, TaskIdentity

# Longest wait for each of the messages that open an exchange. Every client sends these messages as soon as the call is
# open, and a slow network takes a second or two. Until the messages arrive, the call holds memory, and its tenant is
# unknown.
FIRST_MESSAGE_TIMEOUT_SECONDS = 10.0

# How long to wait for a client to read its error message.
LAST_MESSAGE_TIMEOUT_SECONDS = 5.0
# Grace period for a cancellation that arrives after the end of the client's stream.
_CANCELLATION_NOTICE_SECONDS = 0.2

# Limit for the app_metadata of a message without data: a few numbers, a digest, a reason.
_MAX_METADATA_BYTES = 64 * 1024

_NOTHING = memoryview(b"")

Parsed = TypeVar("Parsed", bound=Message)
ReadMessage: TypeAlias = Callable[[], Awaitable[bytes | None]]
"""Function that returns the next message of a call, or None once the client has half-closed."""

_log = structlog.get_logger(__name__)


class Call(Protocol):
    """The client's side of an exchange (`updraft.service.flight_service.Call`)."""

    async def read(self) -> bytes | None:
        """Return the next message, or None once the client has half-closed."""

    async def write(self, message: bytes) -> None:
        """Send a message; wait for flow control."""

    async def accept(self) -> None:
        """Send the headers of the reply before its first message; the call may still fail."""

    def header(self, name: str) -> str:
        """Return the value of a request header, or an empty string if it is absent."""

    @property
    def identity(self) -> Identity:
        """Identity of the caller."""

    @property
    def record(self) -> CallRecord:
        """Audit record of the call."""

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until the client's deadline; None if it set no deadline."""


class IdentifiedCall(Call, Protocol):
    """Call whose caller can be identified again after the call has waited."""

    async def identity_now(self) -> Identity:
        """Check the caller's credentials against the current files, and return the caller's identity.

        Raises UnauthenticatedError.
        """


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits for the messages of an exchange."""

    service: str
    """Name of the service in errors: "pool" or "writer"."""
    max_message_bytes: int
    """Largest size of one message."""
    first_message_timeout_seconds: float = field(default_factory=lambda: FIRST_MESSAGE_TIMEOUT_SECONDS)
    """Longest wait for each of the messages that open an exchange."""


async def first_message(read: ReadMessage, limits: MessageLimits) -> FlightFields:
    """Return the first message, which has the descriptor.

    Raises:
        ProtocolError: The message is missing, late, or has no descriptor.
        LimitError: The message is too large.
    """
    fields = await _message(read, limits)
    if not fields.descriptor:
        raise ProtocolError("the first message has no flight descriptor: send one that says what to do")
    return fields


async def schema_header(read: ReadMessage, first: FlightFields, limits: MessageLimits) -> memoryview:
    """Return Arrow's header of the schema; raise ProtocolError if neither the first nor the second message has one.

    Flight's own libraries send the descriptor alone first, and again with the schema.
    """
    header = first.data_header or (await _message(read, limits)).data_header
    if not header:
        raise ProtocolError("neither the first nor the second message has an Arrow schema")
    return header


async def _message(read: ReadMessage, limits: MessageLimits) -> FlightFields:
    timeout_seconds = limits.first_message_timeout_seconds
    try:
        async with asyncio.timeout(timeout_seconds):
            message = await read()
    except TimeoutError:
        raise ProtocolError(f"no schema within {timeout_seconds:g} seconds of the call's start") from None
    if message is None:
        raise ProtocolError("the exchange ended before its schema")
    check_size(len(message), limits.max_message_bytes, limits.service)
    return split_flight_data(message)


def check_size(size_bytes: int, max_message_bytes: int, service: str, what: str = "message") -> None:
    """Raise LimitError if a message is larger than the service accepts."""
    if size_bytes > max_message_bytes:
        raise LimitError(
            f"a {what} has {size_bytes} bytes, the limit of this {service} is {max_message_bytes}: "
            "send smaller batches or raise --max-message-bytes"
        )


def parse_message(kind: type[Parsed], encoded: bytes | memoryview, otherwise: str) -> Parsed:
    """Parse a protobuf message from a client; raise a ProtocolError with the text `otherwise` if malformed."""
    try:
        return kind.FromString(bytes(encoded))
    except DecodeError as error:
        raise ProtocolError(f"{otherwise}: {error}") from None


def parse_metadata(kind: type[Parsed], encoded: bytes | memoryview) -> Parsed:
    """Parse the app_metadata of a message; raise ProtocolError if malformed, LimitError if too long to be parsed."""
    if len(encoded) > _MAX_METADATA_BYTES:
        raise LimitError(
            f"the app_metadata of a message has {len(encoded)} bytes, the limit is {_MAX_METADATA_BYTES} for all but "
            "batches sent to a pool"
        )
    return parse_message(kind, encoded, f"the app_metadata of a message is not {kind.DESCRIPTOR.name}")


def request_metadata(fields: FlightFields) -> RequestMetadata:
    """Parse the metadata of a pool client's message without a batch; raise ProtocolError or LimitError."""
    return parse_metadata(RequestMetadata, fields.app_metadata)


def event_message(metadata: Message) -> bytes:
    """Encode a FlightData message that has only app_metadata."""
    return join_flight_data(_NOTHING, metadata.SerializeToString(), _NOTHING)


def check_version(client_version: int, service: str) -> None:
    """Raise VersionMismatchError if the client speaks another version of the protocol."""
    if client_version != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"the client speaks version {client_version} of the protocol, this {service} version {PROTOCOL_VERSION}"
        )


def tenant_of(call: Call, task: TaskIdentity) -> str:
    """Return the tenant of an exchange, which is the tenant of the caller's identity.

    If the identity has no fixed tenant, use the tenant in the header, else the tenant of the task's owner, else the
    application id.

    Raises:
        PermissionDeniedError: The call names another tenant than the identity's.
    """
    return call.identity.tenant_of([call.header(TENANT_HEADER), task.owner.tenant]) or task.owner.application_id


def share_of(call: Call, tenant: str) -> str:
    """Return the name under which an exchange is counted for fair shares.

    This is the tenant, unless the identity has a `share`: callers with such an identity may name any number of
    tenants.
    """
    return call.identity.share or tenant


def task_context(task: TaskIdentity) -> dict[str, str]:
    """Return the task's fields for log lines of its exchange, each cut to a bounded length; empty without a task."""
    if not task.owner.application_id:
        return {}
    return {
        "application": shortened(task.owner.application_id),
        "query": shortened(task.query_id),
        "stage": f"{task.stage_id}.{task.stage_attempt_number}",
        "partition": str(task.partition_id),
        "attempt": str(task.attempt_number),
    }


@asynccontextmanager
async def within_deadline(call: Call, what: str) -> AsyncIterator[None]:
    """Raise DeadlineError if the client's deadline passes in the block; `what` names the unfinished work."""
    deadline_seconds = call.remaining_seconds
    try:
        async with asyncio.timeout(deadline_seconds) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        raise DeadlineError(
            f"the {what} was not finished within {deadline_seconds:g} seconds, the deadline that its client set"
        ) from None


async def fail_without_finish() -> NoReturn:
    """Raise ProtocolError because the client's stream ended without a finish, unless the call was cancelled."""
    # gRPC's reader cannot tell a cancelled call from a half-closed call. If the call was cancelled, the cancellation
    # arrives during this wait.
    await asyncio.sleep(_CANCELLATION_NOTICE_SECONDS)
    raise ProtocolError("the client ended its stream without finish: batches may have been lost")


async def send_last(sending: Awaitable[None]) -> None:
    """Send the message with the error; a client that does not read this message in time receives only the status."""
    try:
        async with asyncio.timeout(LAST_MESSAGE_TIMEOUT_SECONDS):
            await sending
    except TimeoutError:
        _log.warning("the client does not read: it gets only the error's status")
