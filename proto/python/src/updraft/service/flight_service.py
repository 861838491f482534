# SPDX-License-Identifier: Apache-2.0
"""Arrow Flight on grpc.aio. This module only parses, delegates, and maps errors to gRPC statuses.

A service subclasses `FlightService`. Its exchanges read and write raw FlightData bytes through a `Call`, so that the
service can relay batches without parsing them. The control methods use pyarrow.flight's message types. The first
control call imports these types, because the import takes as long as the rest of a front's start.
"""

import asyncio
import functools
import importlib
import json
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import grpc
import grpc.aio
import structlog

from updraft.errors import (
    ActionRefusedError,
    InternalError,
    LimitError,
    ProtocolError,
    UnauthenticatedError,
    UpdraftError,
)
from updraft.protocol import DATABEND_TENANT_HEADER, TENANT_HEADER
from updraft.service.audit import NO_RECORD, Audit, CallRecord
from updraft.service.authenticator import Authenticator, certificate_names
from updraft.service.early_reads import EarlyReads
from updraft.service.identity import ANYBODY, Identity, Scope
from updraft.service.lifecycle import Event, Lifecycle

FLIGHT_SERVICE_NAME = "arrow.flight.protocol.FlightService"
RETRY_AFTER_TRAILER = "retry-after-ms"
DRAIN_ACTION = "updraft.drain"
WHOAMI_ACTION = "updraft.whoami"
_WHOAMI_DOC = (
    "The caller's identity as this service sees it, as a JSON object: identity, tenant, scopes, roots, expires."
)

MAX_ACTION_BODY_BYTES = 4 * 1024 * 1024
"""Limit for the body of an action. The longest body is a file's command, sent to ask whether a writer accepts the
file."""
# The rest of a request is an action's name or a flight's path: a line of text.
_MAX_REQUEST_BYTES = MAX_ACTION_BODY_BYTES + 4096
_AUTHORIZATION = "authorization"
_HEADERS_OF_CALLERS = (_AUTHORIZATION, TENANT_HEADER, DATABEND_TENANT_HEADER)

_NO_DRAIN = (
    "clients may not drain this service: send its process SIGTERM (in a cluster: `updraft drain POD`), "
    "start it with --allow-remote-drain, or call as an identity with the scope admin"
)

_log = structlog.get_logger(__name__)


@runtime_checkable
class ExpectsBodies(Protocol):
    """Context of a call whose messages another process receives."""

    def expect_bodies(self, sizes_bytes: Sequence[int]) -> None:
        """Accept bodies of large messages up to these sizes, in this order."""

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Drop further messages. Call `then` when no body of this call is being written to memory."""


class Call:
    """One exchange: raw messages in and out, the caller's identity, the client's headers and its deadline."""

    def __init__(
        self,
        context: "grpc.aio.ServicerContext[bytes, bytes]",
        identity: Identity = ANYBODY,
        record: CallRecord = NO_RECORD,
        identify: Callable[[float], Awaitable[Identity]] | None = None,
    ) -> None:
        """Wrap a gRPC call.

        Args:
            context: The gRPC call.
            identity: The caller's identity.
            record: Audit record of the call.
            identify: Function that identifies the caller again by its credentials. The argument says how many seconds
                ago the call began.
        """
        self.identity = identity
        self.record = record
        self._context = context
        self._identify = identify
        self._began_seconds = time.monotonic()
        self._headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}

    async def read(self) -> bytes | None:
        """Return the next message, or None once the client has half-closed."""
        message = await self._context.read()
        return None if message is grpc.aio.EOF else message

    def expect_bodies(self, sizes_bytes: Sequence[int]) -> None:
        """Accept bodies of large messages up to these sizes, in this order. Call it before the client may send them."""
        if isinstance(self._context, ExpectsBodies):
            self._context.expect_bodies(sizes_bytes)

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Stop reading. Call `then` when no other process is writing a body of this call to memory."""
        if isinstance(self._context, ExpectsBodies):
            self._context.stop_reading(then)
        else:
            then()

    async def write(self, message: bytes) -> None:
        """Send a message; return when HTTP/2 flow control has accepted it."""
        await self._context.write(message)

    async def accept(self) -> None:
        """Send the headers of the reply before its first message; the call may still fail."""
        await self._context.send_initial_metadata(())

    def header(self, name: str) -> str:
        """Return the value of a request header, or an empty string if it is absent."""
        return self._headers.get(name, "")

    async def identity_now(self) -> Identity:
        """Check the caller's credentials with the current files; return its identity or raise UnauthenticatedError.

        A token that expired since the call began is accepted; a revoked token is not.
        """
        if self._identify is None:
            return self.identity
        return await self._identify(time.monotonic() - self._began_seconds)

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until the client's deadline; None if it set no deadline."""
        remaining: float | None = self._context.time_remaining()
        return remaining


class Action(NamedTuple):
    """Action that a client can call by name (Flight's DoAction)."""

    name: str
    doc: str
    """Description in the list of actions."""
    run: Callable[[bytes, Identity], Awaitable[bytes]]
    """Run the action: take the request's body and the caller, return the answer's body; raise UpdraftError."""
    refusal: str = ""
    """Error for callers without the scope `admin`; empty if every authenticated caller may run the action."""
    is_recorded: bool = False
    """Whether the audit log records the action. Set it for actions that change the service, or show what the code of
    every tenant does."""


class FlightService(ABC):
    """Base class of a Flight service. Its methods raise an UpdraftError if they fail."""

    def __init__(
        self,
        name: str,
        actions: Iterable[Action],
        lifecycle: Lifecycle,
        early_reads: EarlyReads,
        *,
        drain_doc: str,
        allow_remote_drain: bool,
    ) -> None:
        """Set up the actions; every service also has DRAIN_ACTION and WHOAMI_ACTION.

        Args:
            name: Name of the service in errors.
            actions: Actions of this service.
            lifecycle: Life cycle that a drain changes.
            early_reads: Memory bound for requests and the first messages of exchanges together.
            drain_doc: Description of DRAIN_ACTION.
            allow_remote_drain: Allow DRAIN_ACTION without the scope admin.
        """
        self.early_reads = early_reads
        self._name = name
        self._lifecycle = lifecycle
        refusal = "" if allow_remote_drain else _NO_DRAIN
        drain = Action(DRAIN_ACTION, drain_doc, self._drain, refusal, is_recorded=True)
        whoami = Action(WHOAMI_ACTION, _WHOAMI_DOC, self._whoami)
        self._actions = {action.name: action for action in [*actions, whoami, drain]}

    @abstractmethod
    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange; the call ends with OK when this method returns."""

    def list_flights(self) -> Iterable[Any]:
        """Return all flights, as pyarrow.flight.FlightInfo; by default, there are no flights."""
        return []

    @abstractmethod
    def flight_info(self, descriptor: Any, header: Callable[[str], str]) -> Any:
        """Return the FlightInfo for a pyarrow.flight.FlightDescriptor; raise UpdraftError.

        `header` looks up a header of the call.
        """

    def list_actions(self, identity: Identity) -> Iterable[Action]:
        """Return the actions that the caller may run."""
        return [action for action in self._actions.values() if _may(identity, action)]

    async def do_action(self, name: str, body: bytes, identity: Identity, record: CallRecord = NO_RECORD) -> bytes:
        """Run an action and return the body of its answer.

        Raises:
            ProtocolError: There is no such action.
            ActionRefusedError: The caller may not run the action.
            UpdraftError: The action failed.
        """
        action = self._actions.get(name)
        if action is None:
            known = ", ".join(allowed.name for allowed in self.list_actions(identity))
            raise ProtocolError(f"no action {name!r}: this {self._name} has {known}")
        record.describe(action=name)
        if not _may(identity, action):
            raise ActionRefusedError(action.refusal)
        if action.is_recorded:
            await record.opened()
            return await action.run(body, identity)
        answer = await action.run(body, identity)
        # A permitted query leaves no record; a refused query does.
        record.forget()
        return answer

    async def _whoami(self, _body: bytes, identity: Identity) -> bytes:
        return json.dumps(identity.described()).encode()

    async def _drain(self, _body: bytes, _identity: Identity) -> bytes:
        self._lifecycle.handle(Event.DRAIN_REQUESTED)
        return b""


def _may(identity: Identity, action: Action) -> bool:
    return not action.refusal or Scope.ADMIN in identity.scopes


def flight_handler(
    service: FlightService, authenticator: Authenticator, audit: Audit, *, request_timeout_seconds: float
) -> grpc.GenericRpcHandler:
    """Return the gRPC handler of `service`, which authenticates callers with `authenticator`.

    Flight's other methods end with UNIMPLEMENTED. Every method is declared as streaming, because gRPC would receive the
    request of a unary method, whatever its size, before the service authenticates the caller. On the wire, unary and
    streaming methods look the same.
    """
    adapter = _Adapter(service, authenticator, audit, request_timeout_seconds)
    return grpc.method_handlers_generic_handler(
        FLIGHT_SERVICE_NAME,
        {
            "DoExchange": grpc.stream_stream_rpc_method_handler(adapter.do_exchange),
            "ListFlights": grpc.stream_stream_rpc_method_handler(adapter.list_flights),
            "GetFlightInfo": grpc.stream_stream_rpc_method_handler(adapter.flight_info),
            "ListActions": grpc.stream_stream_rpc_method_handler(adapter.list_actions),
            "DoAction": grpc.stream_stream_rpc_method_handler(adapter.do_action),
        },
    )


class _Adapter:
    """gRPC methods of a service, one coroutine each."""

    def __init__(
        self, service: FlightService, authenticator: Authenticator, audit: Audit, request_timeout_seconds: float
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._audit = audit
        self._request_timeout_seconds = request_timeout_seconds

    async def do_exchange(self, _requests: Any, context: Any) -> None:
        async with _errors_as_status(context):
            with self._audit.call("exchange", context.peer()) as record:
                identity = await self._identified(context, record)
                again = functools.partial(self._identity, context)
                await self._service.do_exchange(Call(context, identity, record, again))

    async def list_flights(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        async with _errors_as_status(context):
            await self._question(context)
            await _flight_types()
            for info in self._service.list_flights():
                yield bytes(info.serialize())

    async def flight_info(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        async with _errors_as_status(context):
            identity, request = await self._question(context)
            flight = await _flight_types()
            descriptor = _deserialized(flight.FlightDescriptor, request)
            yield bytes(self._service.flight_info(descriptor, Call(context, identity).header).serialize())

    async def list_actions(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        async with _errors_as_status(context):
            identity, _ = await self._question(context)
            flight = await _flight_types()
            for action in self._service.list_actions(identity):
                # An ActionType has no serialize(), but its two fields are encoded like the two fields of an Action.
                yield bytes(flight.Action(action.name, action.doc.encode()).serialize())

    async def do_action(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        async with _errors_as_status(context):
            with self._audit.call("action", context.peer()) as record:
                identity = await self._identified(context, record)
                request = await self._request(context, identity)
                flight = await _flight_types()
                action = _deserialized(flight.Action, request)
                result = await self._service.do_action(action.type, action.body.to_pybytes(), identity, record)
            yield bytes(flight.Result(result).serialize())

    async def _question(self, context: Any) -> tuple[Identity, bytes]:
        """Authenticate a query and read its request.

        Permitted queries are not audited; failed authentication is.
        """
        with self._audit.call("question", context.peer()) as record:
            identity = await self._identified(context, record)
            request = await self._request(context, identity)
            record.forget()
        return identity, request

    async def _identified(self, context: Any, record: CallRecord) -> Identity:
        identity = await self._identity(context)
        record.describe(identity=identity.name, tenant=identity.tenant or "")
        return identity

    async def _request(self, context: Any, identity: Identity) -> bytes:
        """Read the request of a query or an action; raise ProtocolError, LimitError, or the refusal of early reads."""
        timeout_seconds = self._request_timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                request = await self._service.early_reads.read(Call(context, identity))
        except TimeoutError:
            raise ProtocolError(f"no request within {timeout_seconds:g} seconds of the call's start") from None
        if request is None:
            raise ProtocolError("the call ended before its request")
        if len(request) > _MAX_REQUEST_BYTES:
            raise LimitError(f"a request has {len(request)} bytes, the limit is {_MAX_REQUEST_BYTES}")
        return request

    async def _identity(self, context: Any, waited_seconds: float = 0.0) -> Identity:
        """Return the caller's identity; raise UnauthenticatedError. Accept a token valid `waited_seconds` ago."""
        headers = list(context.invocation_metadata() or ())
        for name in _HEADERS_OF_CALLERS:
            # If a header is repeated, a proxy in front of this service may have checked one value while this service
            # uses another.
            if len({value for key, value in headers if key == name}) > 1:
                raise UnauthenticatedError(f"the call has several headers {name!r} that differ: send one")
        names = certificate_names(context.auth_context())
        authorization = str(dict(headers).get(_AUTHORIZATION, ""))
        return await self._authenticator.identify(authorization, names, waited_seconds=waited_seconds)


@asynccontextmanager
async def _errors_as_status(context: Any) -> AsyncGenerator[None]:
    """Turn an exception of the block into the call's status."""
    try:
        yield
    except UpdraftError as error:
        failure = error
        _forget_locals(error)
    except Exception as error:
        _log.exception("unexpected error in a call", peer=context.peer())
        _forget_locals(error)
        failure = InternalError("the service failed in an unexpected way: its log has the details")
    else:
        return
    trailers: tuple[tuple[str, str], ...] = ()
    if failure.retry_after_milliseconds:
        trailers = ((RETRY_AFTER_TRAILER, str(failure.retry_after_milliseconds)),)
    await context.abort(grpc.StatusCode[failure.code], failure.status_message(), trailers)


def _forget_locals(error: BaseException | None) -> None:
    """Free the local variables of the functions that failed, such as a client's messages.

    The error and the frames of these functions refer to each other, so the variables would otherwise stay in memory
    until Python's cycle collector runs. In an idle service, the collector may not run for hours.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


async def _flight_types() -> Any:
    return await asyncio.to_thread(importlib.import_module, "pyarrow.flight")


def _deserialized(message_type: Any, data: bytes) -> Any:
    try:
        return message_type.deserialize(data)
    except Exception as error:
        raise ProtocolError(f"not a {message_type.__name__}: {error}") from None
