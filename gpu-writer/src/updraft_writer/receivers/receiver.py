# SPDX-License-Identifier: Apache-2.0
"""Receiver: a gRPC server whose calls the writer's process answers.

The receiver neither checks credentials nor parses requests. It parses a message only so far that it can move the body
of the message into the shared memory.
"""

import asyncio
import ctypes
import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from updraft.flight_data import split_body
from updraft.service.allocator import clean_freed_memory
from updraft.service.lifecycle import StartError
from updraft.service.listeners import OwnFlightServer, allow_all_descriptors
from updraft_writer.receivers.frames import (
    INLINE_BYTES,
    MOST_INLINE_BYTES,
    MOST_NEW_CALLS,
    NUMBER,
    Kind,
    Link,
    Opening,
    Status,
)
from updraft_writer.settings import ServeSettings

_NO_MESSAGE = b"", 0
_COMMANDS = frozenset({Kind.ACCEPT, Kind.WRITE, Kind.FINISH})


class Receiver:
    """Server in a receiver's process."""

    def __init__(self, settings: ServeSettings, address: int) -> None:
        """Prepare the server; `address` is the address at which this process has mapped the shared memory."""
        self._settings = settings
        self._address = address
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count(1)
        # Each CALL occupies a slot until its TAKEN arrives, even if the call ends earlier.
        self._may_open = asyncio.Semaphore(MOST_NEW_CALLS)
        self._stopped: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self.link = Link(self._handle, self._lost)

    async def run(self) -> None:
        """Serve until the writer's process sends STOP or ends."""
        allow_all_descriptors()
        server = OwnFlightServer(self._settings, shares_port=True)
        server.add_generic_rpc_handlers((_AnyMethod(self._serve),))
        try:
            addresses = await server.listen()
        except StartError as error:
            self.link.send(Kind.CANNOT_LISTEN, 0, str(error).encode())
            return
        self.link.send(Kind.LISTENING, 0, json.dumps(addresses).encode())
        await server.stop(await self._stopped)

    def _lost(self) -> None:
        self._stop(None)

    def _stop(self, grace_seconds: float | None) -> None:
        if not self._stopped.done():
            self._stopped.set_result(grace_seconds)

    def _handle(self, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.STOP:
            self._stop(json.loads(payload))
        elif kind is Kind.CLEAN:
            clean_freed_memory()
        elif kind is Kind.TAKEN:
            self._may_open.release()
        elif (call := self._calls.get(number)) is not None:
            call.handle(kind, payload)

    async def _serve(self, method: str, _requests: Any, context: Any) -> None:
        # Wait for a slot, because clients can open and cancel calls faster than the writer's process accepts them.
        await self._may_open.acquire()
        number = next(self._numbers)
        call = self._calls[number] = _Call(context, partial(self._answer, number), self._address)
        self.link.send(Kind.CALL, number, _opening(method, context).encoded())
        try:
            await call.run()
        finally:
            call.close()
            del self._calls[number]
            self.link.send(Kind.ENDED, number)

    def _answer(self, number: int, kind: Kind, *payload: bytes | memoryview) -> None:
        self.link.send(kind, number, *payload)


class _AnyMethod(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Handler of every method, known or not: the writer's process refuses unknown methods."""

    def __init__(self, serve: Callable[..., Any]) -> None:
        self._serve = serve

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(partial(self._serve, details.method))


class _Call:
    """Open call."""

    def __init__(self, context: Any, answer: Callable[..., None], address: int) -> None:
        self._context = context
        self._answer = answer
        self._address = address
        # Message whose body has not been placed in the shared memory yet, and the size of the body.
        self._large = _NO_MESSAGE
        self._commands: asyncio.Queue[tuple[Kind, bytes]] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    def handle(self, kind: Kind, payload: bytes) -> None:
        """Act on a frame for this call."""
        if kind is Kind.READ:
            self._large = _NO_MESSAGE
            self._reading = asyncio.create_task(self._read())
        elif kind is Kind.PLACE:
            self._place(*NUMBER.unpack(payload))
        elif kind in _COMMANDS:
            self._commands.put_nowait((kind, payload))

    async def run(self) -> None:
        """Execute the frames of the writer's process until the call has ended."""
        while True:
            kind, payload = await self._commands.get()
            match kind:
                case Kind.ACCEPT:
                    await self._context.send_initial_metadata(())
                case Kind.WRITE:
                    await self._context.write(payload)
                    self._answer(Kind.WRITTEN)
                case _:
                    status = Status.decoded(payload)
                    if status.code:
                        await self._context.abort(grpc.StatusCode[status.code], status.details, status.trailers)
                    return

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            message = await self._context.read()
        except Exception:
            # gRPC fails a read only if the call has ended, which also ends `run`.
            return
        if message is grpc.aio.EOF:
            self._answer(Kind.HALF_CLOSED)
        else:
            self._pass_on(message)

    def _pass_on(self, message: bytes) -> None:
        head, body_bytes = split_body(message)
        if len(head) > MOST_INLINE_BYTES:
            self._answer(Kind.OVERSIZED, NUMBER.pack(len(head)))
        elif body_bytes <= INLINE_BYTES:
            self._answer(Kind.MESSAGE, message)
        else:
            self._large = message, body_bytes
            self._answer(Kind.LARGE_MESSAGE, NUMBER.pack(body_bytes), head)

    def _place(self, offset: int) -> None:
        message, body_bytes = self._large
        self._large = _NO_MESSAGE
        source = ctypes.cast(ctypes.c_char_p(message), ctypes.c_void_p).value or 0
        ctypes.memmove(self._address + offset, source + len(message) - body_bytes, body_bytes)
        self._answer(Kind.PLACED)


def _opening(method: str, context: Any) -> Opening:
    return Opening(
        method,
        context.peer(),
        [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)],
        {key: [value.decode("latin-1") for value in values] for key, values in (context.auth_context() or {}).items()},
        context.time_remaining(),
    )
