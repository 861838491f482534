# SPDX-License-Identifier: Apache-2.0
"""What the exchanges of every service have in common: how one opens, whose it is, its deadline, how a failure is told.

A service adds what its own command means: `updraft_server.front.request.request`, `updraft_writer.request`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from updraft.errors import DeadlineError, LimitError, ProtocolError, VersionMismatchError
from updraft.flight_data import FlightFields, join_flight_data, split_flight_data
from updraft.protocol import PROTOCOL_VERSION, TENANT_HEADER
from updraft.service.audit import CallRecord
from updraft.service.identity import Identity
from updraft.service.log_lines import shortened
from updraft.v1.exchange_pb2 import RequestMetadata, TaskIdentity

# How long a client that reads nothing can hold back its own error message.
LAST_MESSAGE_TIMEOUT_SECONDS = 5.0
# Grace period for a cancellation that arrives after the end of the client's stream.
_CANCELLATION_NOTICE_SECONDS = 0.2

# Of what says what a message without data is: a few numbers, a digest, a reason.
_MAX_METADATA_BYTES = 64 * 1024

_NOTHING = memoryview(b"")

Parsed = TypeVar("Parsed", bound=Message)

_log = structlog.get_logger(__name__)


class Call(Protocol):
    """The client's side of an exchange (`updraft.service.flight_service.Call`)."""

    async def read(self) -> bytes | None:
        """The next message, or None once the client has half-closed."""

    async def write(self, message: bytes) -> None:
        """Send a message, held back by flow control."""

    async def accept(self) -> None:
        """Send the headers of the reply before its first message; it may still fail."""

    def header(self, name: str) -> str:
        """A request header, empty when absent."""

    @property
    def identity(self) -> Identity:
        """Who calls."""

    @property
    def record(self) -> CallRecord:
        """What the audit log says of it."""

    @property
    def remaining_seconds(self) -> float | None:
        """Time until the client's deadline."""


class IdentifiedCall(Call, Protocol):
    """The same where who calls may change while the call waits."""

    async def identity_now(self) -> Identity:
        """Who calls, by the same credentials and the files of now; raises UnauthenticatedError."""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """What holds for the messages of an exchange."""

    service: str
    """What messages call the service: "pool" or "writer"."""
    max_message_bytes: int
    """Of any one message."""
    first_message_timeout_seconds: float
    """Until each of the messages that open an exchange."""


async def first_message(call: Call, limits: MessageLimits) -> FlightFields:
    """The message with the descriptor; raises ProtocolError when there is none, or none in time, and LimitError."""
    fields = await _message(call, limits)
    if not fields.descriptor:
        raise ProtocolError("the first message has no flight descriptor: nothing says what to do")
    return fields


async def schema_header(call: Call, first: FlightFields, limits: MessageLimits) -> memoryview:
    """Arrow's header of the schema; raises ProtocolError where neither the first message nor the second has one.

    Flight's own libraries send the descriptor by itself first and again with the schema.
    """
    header = first.data_header or (await _message(call, limits)).data_header
    if not header:
        raise ProtocolError("neither the first nor the second message has an Arrow schema")
    return header


async def _message(call: Call, limits: MessageLimits) -> FlightFields:
    timeout_seconds = limits.first_message_timeout_seconds
    try:
        async with asyncio.timeout(timeout_seconds):
            message = await call.read()
    except TimeoutError:
        raise ProtocolError(f"no schema within {timeout_seconds:g} seconds of the call's start") from None
    if message is None:
        raise ProtocolError("the exchange ended before its schema")
    check_size(len(message), limits.max_message_bytes, limits.service)
    return split_flight_data(message)


def check_size(size_bytes: int, max_message_bytes: int, service: str, what: str = "message") -> None:
    """Raise LimitError for a message that is larger than the service takes."""
    if size_bytes > max_message_bytes:
        raise LimitError(
            f"a {what} has {size_bytes} bytes, the limit of this {service} is {max_message_bytes}: "
            "send smaller batches or raise --max-message-bytes"
        )


def parse_message(kind: type[Parsed], encoded: bytes | memoryview, otherwise: str) -> Parsed:
    """A protobuf message that a client has sent; raises ProtocolError that says `otherwise`."""
    try:
        return kind.FromString(bytes(encoded))
    except DecodeError as error:
        raise ProtocolError(f"{otherwise}: {error}") from None


def parse_metadata(kind: type[Parsed], encoded: bytes | memoryview) -> Parsed:
    """What a client says with a message; raises ProtocolError, and LimitError for what is long before it is parsed."""
    if len(encoded) > _MAX_METADATA_BYTES:
        raise LimitError(
            f"the app_metadata of a message has {len(encoded)} bytes, the limit is {_MAX_METADATA_BYTES} where it is "
            "not that of a pool's batch"
        )
    return parse_message(kind, encoded, f"the app_metadata of a message is not {kind.DESCRIPTOR.name}")


def request_metadata(fields: FlightFields) -> RequestMetadata:
    """What a pool's client says with a message that has no batch; raises ProtocolError and LimitError."""
    return parse_metadata(RequestMetadata, fields.app_metadata)


def event_message(metadata: Message) -> bytes:
    """A FlightData without data: its app_metadata says all."""
    return join_flight_data(_NOTHING, metadata.SerializeToString(), _NOTHING)


def check_version(client_version: int, service: str) -> None:
    """Raise VersionMismatchError for a command of another version of the protocol."""
    if client_version != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"the client speaks version {client_version} of the protocol, this {service} version {PROTOCOL_VERSION}"
        )


def tenant_of(call: Call, task: TaskIdentity) -> str:
    """Whose the exchange is: the identity's; raises PermissionDeniedError.

    An identity of no tenant says itself which one it is: the header's, else the owner's, else the application.
    """
    return call.identity.tenant_of([call.header(TENANT_HEADER), task.owner.tenant]) or task.owner.application_id


def share_of(call: Call, tenant: str) -> str:
    """Whose share an exchange of this tenant takes: the tenant's, unless who calls may name any number of them."""
    return call.identity.share or tenant


def task_context(task: TaskIdentity) -> dict[str, str]:
    """The task for every log line of its exchange: short, however long a client's own texts are; empty without one."""
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
    """Raise DeadlineError when the client's own deadline ends the block; `what` was then not finished."""
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
    """The client's stream has ended without its finish: raise ProtocolError, unless the call was cancelled."""
    # To gRPC's reader a cancelled call ends like a half-closed one; the cancellation arrives in this wait.
    await asyncio.sleep(_CANCELLATION_NOTICE_SECONDS)
    raise ProtocolError("the client ended its stream without finish: batches may have been lost")


async def send_last(sending: Awaitable[None]) -> None:
    """Send the message that has the error; a client that does not read gets the status alone."""
    try:
        async with asyncio.timeout(LAST_MESSAGE_TIMEOUT_SECONDS):
            await sending
    except TimeoutError:
        _log.warning("the client does not read: it gets the error's status alone")
