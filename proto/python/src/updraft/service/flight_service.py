# SPDX-License-Identifier: Apache-2.0
"""Arrow Flight on grpc.aio. This module only parses, delegates, and maps errors to gRPC statuses.

A service subclasses `FlightService`. Its exchanges read and write raw FlightData bytes through a `Call`, so that it can
relay batches without parsing them. The control methods use pyarrow.flight's message types, which are imported by the
first control call: importing them takes as long as everything else that a front does when it starts.
"""

import asyncio
import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog

from updraft.errors import ActionRefusedError, InternalError, ProtocolError, UpdraftError

FLIGHT_SERVICE_NAME = "arrow.flight.protocol.FlightService"
RETRY_AFTER_TRAILER = "retry-after-ms"
DRAIN_ACTION = "updraft.drain"

Answer = TypeVar("Answer")

_log = structlog.get_logger(__name__)


class Call:
    """One exchange: raw messages in and out, the client's headers and its deadline."""

    def __init__(self, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        self._context = context
        self._headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}

    async def read(self) -> bytes | None:
        """The next message, or None once the client has half-closed."""
        message = await self._context.read()
        return None if message is grpc.aio.EOF else message

    async def write(self, message: bytes) -> None:
        """Send a message; returns when HTTP/2 flow control has accepted it."""
        await self._context.write(message)

    def header(self, name: str) -> str:
        """The value of a request header; empty if there is none."""
        return self._headers.get(name, "")

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until the client's deadline; None if it set no deadline."""
        remaining: float | None = self._context.time_remaining()
        return remaining

    @property
    def peer(self) -> str:
        """The client's address, as gRPC writes it."""
        return str(self._context.peer())


class FlightService(ABC):
    """Base class of a Flight service. Its methods raise an UpdraftError when they fail."""

    @abstractmethod
    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange; it ends with OK when this returns."""

    @abstractmethod
    def list_flights(self) -> Iterable[Any]:
        """All flights, as pyarrow.flight.FlightInfo."""

    @abstractmethod
    def flight_info(self, descriptor: Any) -> Any:
        """The FlightInfo for a pyarrow.flight.FlightDescriptor; raises FunctionNotFoundError."""

    @abstractmethod
    def list_actions(self) -> Iterable[tuple[str, str]]:
        """Name and description of every action."""

    @abstractmethod
    async def do_action(self, name: str, body: bytes) -> bytes:
        """Run an action; raises UpdraftError for one that does not exist."""


def remote_drain_refused() -> ActionRefusedError:
    """The error for a refused DRAIN_ACTION: it says what to do instead."""
    return ActionRefusedError(
        "clients may not drain this service: send its process SIGTERM (in a cluster: `updraft drain POD`), "
        "or start it with --allow-remote-drain"
    )


def flight_handler(service: FlightService) -> grpc.GenericRpcHandler:
    """The gRPC handler for `service`; all other Flight methods end with UNIMPLEMENTED."""
    adapter = _Adapter(service)
    return grpc.method_handlers_generic_handler(
        FLIGHT_SERVICE_NAME,
        {
            "DoExchange": grpc.stream_stream_rpc_method_handler(adapter.do_exchange),
            "ListFlights": grpc.unary_stream_rpc_method_handler(adapter.list_flights),
            "GetFlightInfo": grpc.unary_unary_rpc_method_handler(adapter.flight_info),
            "ListActions": grpc.unary_stream_rpc_method_handler(adapter.list_actions),
            "DoAction": grpc.unary_stream_rpc_method_handler(adapter.do_action),
        },
    )


class _Adapter:
    """The gRPC methods, one coroutine each."""

    def __init__(self, service: FlightService) -> None:
        self._service = service

    async def do_exchange(self, _requests: Any, context: Any) -> None:
        await _with_status(context, lambda: self._service.do_exchange(Call(context)))

    async def list_flights(self, _request: bytes, context: Any) -> AsyncIterator[bytes]:
        async def answer() -> list[bytes]:
            await _flight_types()
            return [bytes(info.serialize()) for info in self._service.list_flights()]

        for message in await _with_status(context, answer):
            yield message

    async def flight_info(self, request: bytes, context: Any) -> bytes:
        async def answer() -> bytes:
            flight = await _flight_types()
            return bytes(self._service.flight_info(_deserialized(flight.FlightDescriptor, request)).serialize())

        return await _with_status(context, answer)

    async def list_actions(self, _request: bytes, context: Any) -> AsyncIterator[bytes]:
        async def answer() -> list[bytes]:
            flight = await _flight_types()
            # An ActionType has no serialize(); its two fields are those of an Action.
            actions = self._service.list_actions()
            return [bytes(flight.Action(name, text.encode()).serialize()) for name, text in actions]

        for message in await _with_status(context, answer):
            yield message

    async def do_action(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        async def answer() -> bytes:
            flight = await _flight_types()
            action = _deserialized(flight.Action, request)
            result = await self._service.do_action(action.type, action.body.to_pybytes())
            return bytes(flight.Result(result).serialize())

        yield await _with_status(context, answer)


async def _with_status(context: Any, answer: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run `answer`; an exception becomes the call's status."""
    try:
        return await answer()
    except UpdraftError as error:
        failure = error
    except Exception:
        _log.exception("unexpected error in a call", peer=context.peer())
        failure = InternalError("the service failed in an unexpected way: its log has the details")
    trailers: tuple[tuple[str, str], ...] = ()
    if failure.retry_after_milliseconds:
        trailers = ((RETRY_AFTER_TRAILER, str(failure.retry_after_milliseconds)),)
    await context.abort(grpc.StatusCode[failure.code], failure.status_message(), trailers)
    raise AssertionError("abort raises")


async def _flight_types() -> Any:
    return await asyncio.to_thread(importlib.import_module, "pyarrow.flight")


def _deserialized(message_type: Any, data: bytes) -> Any:
    try:
        return message_type.deserialize(data)
    except Exception as error:
        raise ProtocolError(f"not a {message_type.__name__}: {error}") from None
