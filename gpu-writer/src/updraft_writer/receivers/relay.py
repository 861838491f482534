# SPDX-License-Identifier: Apache-2.0
"""Calls of one receiver. The same handlers also answer calls that the writer's process receives without receivers."""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from updraft.errors import InternalError, ProtocolError, UpdraftError
from updraft_writer.futures import ignore_failure
from updraft_writer.receivers.frames import MOST_INLINE_BYTES, NUMBER, Kind, Link, Opening, Status
from updraft_writer.receivers.shared_memory import PlacedMessage, SharedMemory

_log = structlog.get_logger(__name__)


class RelayedContext:
    """gRPC context of a call that a receiver holds."""

    def __init__(self, opening: Opening, send: Callable[..., None], memory: SharedMemory) -> None:
        self._opening = opening
        self._send = send
        self._memory = memory
        self._ends_seconds = None if opening.remaining_seconds is None else time.monotonic() + opening.remaining_seconds
        self._serialize: Callable[[Any], bytes] | None = None
        self._reading: asyncio.Future[bytes | object] | None = None
        self._writings: deque[asyncio.Future[None]] = deque()
        self._expected: Sequence[int] = ()
        # Message whose body the receiver is copying into the shared memory.
        self._placing: PlacedMessage | None = None
        # Whether to drop messages. If a copy was running when dropping began, also the callback to call after that
        # copy.
        self._is_dropping = False
        self._on_placed: Callable[[], None] | None = None
        self._is_finished = False
        self._has_ended = False

    def peer(self) -> str:
        """Return the client's address."""
        return self._opening.peer

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the headers of the call."""
        return self._opening.headers

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return the properties of the client's certificate."""
        return {
            key: [value.encode("latin-1") for value in values] for key, values in self._opening.authentication.items()
        }

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None if it set no deadline."""
        return None if self._ends_seconds is None else max(0.0, self._ends_seconds - time.monotonic())

    def expect_bodies(self, sizes_bytes: Sequence[int]) -> None:
        """Accept bodies of large messages up to these sizes, in this order. Call this before the client may send."""
        self._memory.expected_bytes += sum(sizes_bytes) - sum(self._expected)
        self._expected = sizes_bytes

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Drop further messages. Call `then` at once or, if the receiver is copying a body, after the copy."""
        self.expect_bodies(())
        self._reading, self._is_dropping = None, True
        if self._placing is None:
            then()
        else:
            self._on_placed = then

    async def read(self) -> Any:
        """Return the next message, or grpc.aio.EOF once the client has half-closed."""
        if self._has_ended:
            return grpc.aio.EOF
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_future()
            self._reading.add_done_callback(ignore_failure)
            self._send(Kind.READ)
        # The receiver cannot cancel a READ. If this read is cancelled, the next read returns its message.
        message = await asyncio.shield(self._reading)
        self._reading = None
        return message

    async def write(self, message: Any) -> None:
        """Send a message; return when gRPC in the receiver has accepted the message."""
        if self._has_ended:
            raise ConnectionError("the call has ended")
        encoded = message if self._serialize is None else self._serialize(message)
        written = asyncio.get_running_loop().create_future()
        written.add_done_callback(ignore_failure)
        self._writings.append(written)
        self._send(Kind.WRITE, encoded)
        await written

    async def send_initial_metadata(self, _headers: Sequence[tuple[str, str]]) -> None:
        """Send the reply's headers. The writer has no headers of its own."""
        self._send(Kind.ACCEPT)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Sequence[tuple[str, str]] = ()
    ) -> NoReturn:
        """End the call with an error; raise AbortError."""
        self._finish(Status(code.name, details, tuple(trailing_metadata)))
        raise grpc.aio.AbortError

    async def serve(self, handler: grpc.RpcMethodHandler | None) -> None:
        """Answer the call."""
        try:
            if handler is None:
                await self.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            self._serialize = handler.response_serializer
            answer = handler.stream_stream(None, self)
            if inspect.isasyncgen(answer):
                async for message in answer:
                    await self.write(message)
            else:
                await answer
            self._finish(Status())
        except grpc.aio.AbortError:
            pass
        except Exception:
            _log.exception("unexpected error in a call", peer=self.peer())
            self._finish(Status(grpc.StatusCode.UNKNOWN.name, "the service failed in an unexpected way"))

    def handle(self, kind: Kind, payload: bytes) -> None:
        """Act on a frame for this call."""
        match kind:
            case Kind.PLACED if self._is_dropping:
                self._copy_ended()
            case Kind.MESSAGE | Kind.LARGE_MESSAGE | Kind.OVERSIZED | Kind.HALF_CLOSED if self._is_dropping:
                pass
            case Kind.MESSAGE:
                self._read_is_done(payload)
            case Kind.LARGE_MESSAGE:
                self._place(NUMBER.unpack_from(payload)[0], payload[NUMBER.size :])
            case Kind.OVERSIZED:
                self._read_failed(
                    ProtocolError(
                        f"a message has {NUMBER.unpack(payload)[0]} bytes in addition to the body of a batch, the "
                        f"limit is {MOST_INLINE_BYTES}: send a shorter message, with the body as its last field"
                    )
                )
            case Kind.PLACED:
                placed, self._placing = self._placing, None
                self._read_is_done(placed)
            case Kind.HALF_CLOSED:
                self._read_is_done(grpc.aio.EOF)
            case Kind.WRITTEN:
                written = self._writings.popleft()
                if not written.done():
                    written.set_result(None)
            case _:
                raise ValueError(f"a receiver sent {kind.name} for a call")

    def ended(self) -> None:
        """Record that the call has ended: the receiver no longer writes to the shared memory for this call."""
        self._has_ended = True
        self.expect_bodies(())
        self._copy_ended()
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(grpc.aio.EOF)
        for written in self._writings:
            if not written.done():
                written.set_exception(ConnectionError("the call has ended"))

    def _place(self, body_bytes: int, rest: bytes) -> None:
        if not self._expected or body_bytes > self._expected[0]:
            self._read_failed(
                ProtocolError(
                    f"a message has {body_bytes} bytes of data, which is more than its credit covers: ask first and "
                    "wait for the credit"
                )
            )
            return
        block = self._memory.take(body_bytes)
        if block is None:
            self._read_failed(
                InternalError(f"the writer has no address space left for {body_bytes} bytes of shared memory")
            )
            return
        self._placing = PlacedMessage.of(rest, block)
        self._send(Kind.PLACE, NUMBER.pack(block.body_offset))

    def _copy_ended(self) -> None:
        self._placing = None
        if self._on_placed is not None:
            # Let the event loop call it: an error raised here would end the connection to the receiver.
            asyncio.get_running_loop().call_soon(self._on_placed)
            self._on_placed = None

    def _read_failed(self, error: UpdraftError) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_exception(error)

    def _read_is_done(self, message: Any) -> None:
        if self._reading is None or self._reading.done():
            raise ValueError("a receiver sent a message without a request for it")
        self._reading.set_result(message)

    def _finish(self, status: Status) -> None:
        if not self._is_finished:
            self._is_finished = True
            self._send(Kind.FINISH, status.encoded())


class Relay:
    """Calls of one receiver."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        memory: SharedMemory,
        on_listening: Callable[[Kind, bytes], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._memory = memory
        self._on_listening = on_listening
        # Calls that the receiver has not ended, with their tasks. A call keeps the blocks that the receiver may still
        # use.
        self._calls: dict[int, tuple[RelayedContext, asyncio.Task[None]]] = {}
        self.link = Link(self._handle, on_lost)

    @property
    def open_calls(self) -> int:
        """Number of calls that the receiver has not ended."""
        return len(self._calls)

    def drop_calls(self) -> None:
        """End all calls. The receiver must have ended before, because other calls reuse its blocks."""
        for context, task in self._calls.values():
            context.ended()
            task.cancel()
        self._calls.clear()

    def _handle(self, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.CALL:
            self._open(number, Opening.decoded(payload))
        elif kind is Kind.ENDED:
            context, task = self._calls.pop(number)
            context.ended()
            task.cancel()
        elif kind in (Kind.LISTENING, Kind.CANNOT_LISTEN):
            self._on_listening(kind, payload)
        else:
            self._calls[number][0].handle(kind, payload)

    def _open(self, number: int, opening: Opening) -> None:
        def send(kind: Kind, *payload: bytes) -> None:
            self.link.send(kind, number, *payload)

        send(Kind.TAKEN)
        context = RelayedContext(opening, send, self._memory)
        found = (handler.service(_Details(opening.method, opening.headers)) for handler in self._handlers)
        task = asyncio.create_task(context.serve(next(filter(None, found), None)))
        self._calls[number] = context, task


class _Details(grpc.HandlerCallDetails):  # type: ignore[misc] # grpc has no types
    def __init__(self, method: str, headers: Sequence[tuple[str, str]]) -> None:
        self.method = method
        self.invocation_metadata = headers
