# SPDX-License-Identifier: Apache-2.0
"""Health service (grpc.health.v1): one board of states, served by every listener of a service.

Clients need no token for health checks, so the size of requests and the number of open watches are limited.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from updraft.errors import UpdraftError

HEALTH_SERVICE_NAME = "grpc.health.v1.Health"
MAX_QUESTION_BYTES = 4096
"""Limit for a request, whose longest part is the name of a registered function."""
MOST_WATCHES = 1024
"""Maximum number of open watches of each server. Clients may keep watches open forever, so at the limit a new watch
ends the oldest watch."""

# The empty name stands for the whole service.
WHOLE_SERVICE = ""

# This name is SERVING as long as the process answers, even while the process is not ready (draining, recovering),
# because a process that answers must not be restarted.
LIVE = "updraft.live"


# A probe sends its request together with the call.
_QUESTION_SECONDS = 10.0
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Read = Callable[[Any], Awaitable[bytes | None]]
"""Function that takes a call's context and returns the call's first message, or None for a call without messages. The
function may raise UpdraftError."""


class Server(Protocol):
    """gRPC server of any kind."""

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve these methods."""


class HealthBoard:
    """State of each name, as probes see it."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()
        self._published: dict[str, bool] = {}

    @property
    def published(self) -> Mapping[str, bool]:
        """Whether each name is serving, as probes see it."""
        return self._published

    def add_to(self, server: Server, read: Read) -> None:
        """Serve the board on `server`; `read` bounds the memory of requests, whose size is unknown beforehand."""
        server.add_generic_rpc_handlers((_Methods(self._servicer, read).handler(),))

    async def publish(self, names: Iterable[str], *, serving: bool) -> None:
        """Set SERVING or NOT_SERVING for each of `names`, and notify watchers."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in names:
            if self._published.get(name) is not serving:
                self._published[name] = serving
                await self._servicer.set(name, status)

    async def withdraw(self, names: Iterable[str]) -> None:
        """Remove `names`: checks end with NOT_FOUND, and watchers receive SERVICE_UNKNOWN."""
        for name in names:
            if self._published.pop(name, None) is not None:
                await self._servicer.set(name, _UNKNOWN)


class _Methods:
    """gRPC methods on one server.

    Every method is declared as streaming, because gRPC would receive the request of a unary method, whatever its size,
    before our code runs. On the wire, unary and streaming methods look the same.
    """

    def __init__(self, servicer: health.aio.HealthServicer, read: Read) -> None:
        self._servicer = servicer
        self._read = read
        # Open watches, in the order in which they began.
        self._watches: dict[asyncio.Timeout, None] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        methods = {"Check": self._check, "Watch": self._watch}
        serialized = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH_SERVICE_NAME,
            {
                name: grpc.stream_stream_rpc_method_handler(method, response_serializer=serialized)
                for name, method in methods.items()
            },
        )

    async def _check(self, _questions: Any, context: Any) -> None:
        question = await self._question(context)
        answer = await self._servicer.Check(question, context)
        if answer.status == _UNKNOWN:
            # Only watches may be answered with SERVICE_UNKNOWN.
            await context.abort(grpc.StatusCode.NOT_FOUND)
        await context.write(answer)

    async def _watch(self, _questions: Any, context: Any) -> None:
        question = await self._question(context)
        try:
            async with asyncio.timeout(None) as patience:
                self._make_room()
                self._watches[patience] = None
                try:
                    await self._servicer.Watch(question, context)
                finally:
                    self._watches.pop(patience, None)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients watch the health of this service: watch again"
            )

    def _make_room(self) -> None:
        if len(self._watches) >= MOST_WATCHES:
            oldest = next(iter(self._watches))
            del self._watches[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())

    async def _question(self, context: Any) -> health_pb2.HealthCheckRequest:
        """Return the request, or abort the call if it is missing, late, too large or malformed."""
        try:
            async with asyncio.timeout(_QUESTION_SECONDS):
                encoded = await self._read(context)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"no request within {_QUESTION_SECONDS:g} seconds of the call's start",
            )
        except UpdraftError as error:
            await context.abort(grpc.StatusCode[error.code], error.status_message())
        if encoded is None or len(encoded) > MAX_QUESTION_BYTES:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"expected a request of at most {MAX_QUESTION_BYTES} bytes"
            )
        try:
            return health_pb2.HealthCheckRequest.FromString(encoded)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
