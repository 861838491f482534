# SPDX-License-Identifier: Apache-2.0
"""Client that calls a pool's registered functions from asyncio.

async with AsyncPoolClient(endpoint="grpc://127.0.0.1:8815") as client:
    await client.call("greeting", {"name": ["Ada", "Grace"]})
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack, overload

import grpc
import pyarrow as pa

from updraft.client.called_function import CalledFunction
from updraft.client.calls import (
    ANY_FIELDS,
    description_in,
    failure_in,
    flight_path,
    output_action,
    profile_action,
    rest_of,
    result_in,
    results_as_table,
    retries_of,
    with_schema,
    with_traceback,
)
from updraft.client.connection import (
    ACTION_METHOD,
    CHANNEL_OPTIONS,
    EXCHANGE_METHOD,
    FLIGHT_INFO_METHOD,
    Connection,
    ConnectionOptions,
)
from updraft.client.exchange import KEEPALIVE, KEEPALIVE_SECONDS, Backlog, Exchange, cut
from updraft.client.frames import Columns, Frame, as_table, in_pieces, like
from updraft.client.profile import Profile
from updraft.client.retries import Failure
from updraft.errors import ProtocolError, UpdraftError
from updraft.v1.control_pb2 import FunctionDescription


class AsyncPoolClient:
    """Connection to a pool, for one event loop, with the methods and the errors of `PoolClient`.

    Cancelling a call frees its worker.
    """

    def __init__(self, **options: Unpack[ConnectionOptions]) -> None:
        """Prepare the connection, inside the event loop that will use it; the arguments are those of `PoolClient`."""
        self._connection = Connection.of(options)
        credentials = self._connection.grpc_credentials
        target = self._connection.endpoint.target
        self._channel = (
            grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        )

    @overload
    async def call(self, name: str, data: Columns, *, group_by: Sequence[str] = ()) -> pa.Table: ...
    @overload
    async def call(self, name: str, data: Frame, *, group_by: Sequence[str] = ()) -> Frame: ...
    async def call(self, name: str, data: Any, *, group_by: Sequence[str] = ()) -> Any:
        """Call a function with a whole table, and return all results, as `PoolClient.call` does."""
        deadline = self._deadline()
        function = CalledFunction(await self._describe(name, deadline), group_by)
        arguments = function.arguments(as_table(data))
        input_ = _Input()
        for batch in cut(arguments):
            input_.backlog.add(batch)
        input_.backlog.is_complete = True
        results = [batch async for batch in self._results(function, arguments.schema, input_, deadline)]
        return like(data, results_as_table(results, function, arguments.schema), same_rows=function.is_one_to_one)

    async def stream(self, name: str, data: Any, *, group_by: Sequence[str] = ()) -> AsyncGenerator[Any]:
        """Call a function, and yield its results as they arrive, as `PoolClient.stream` does.

        `data` is an iterable or an asynchronous iterable of tables, or one table. A separate task reads `data`. An
        iterable that waits for its next table blocks the event loop, so pass an asynchronous iterable if tables arrive
        slowly.
        """
        deadline = self._deadline()
        function = CalledFunction(await self._describe(name, deadline), group_by)
        frames = _asynchronous(in_pieces(data))
        first = await anext(frames, None)
        if first is None:
            return
        arguments = function.arguments(as_table(first))
        input_ = _Input()
        input_.read(_batches(function, arguments, frames))
        results = self._results(function, arguments.schema, input_, deadline)
        async with contextlib.aclosing(results):
            async for batch in results:
                yield like(first, pa.Table.from_batches([batch]), same_rows=False)

    async def describe(self, name: str) -> FunctionDescription:
        """Return the pool's description of a function, as `PoolClient.describe` does."""
        return await self._describe(name, self._deadline())

    async def output(
        self,
        *,
        of_all: bool = False,
        fields: Mapping[str, str] = ANY_FIELDS,
        lines: int = 100,
        after_microseconds: int = 0,
        wait_seconds: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Return the last lines that functions printed in your own calls, as `PoolClient.output` does."""
        request = output_action(
            self._connection,
            of_all=of_all,
            fields=fields,
            lines=lines,
            after_microseconds=after_microseconds,
            wait_seconds=wait_seconds,
        )
        return list(result_in(await self._answer(ACTION_METHOD, request, self._deadline()))["lines"])

    async def profile(self, name: str = "", *, seconds: float = 10.0, of_all: bool = False) -> Profile:
        """Sample where your own running calls spend their time, as `PoolClient.profile` does."""
        request = profile_action(self._connection, name, seconds=seconds, of_all=of_all)
        return Profile.of(result_in(await self._answer(ACTION_METHOD, request, self._deadline())))

    async def close(self) -> None:
        """Close the connection; running calls end."""
        self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def _deadline(self) -> float | None:
        limit = self._connection.timeout_seconds
        return None if limit is None else time.monotonic() + limit

    async def _describe(self, name: str, deadline: float | None) -> FunctionDescription:
        return description_in(await self._answer(FLIGHT_INFO_METHOD, flight_path(name), deadline))

    async def _answer(self, method: str, request: bytes, deadline: float | None) -> bytes:
        """Return the answer to a request that is safe to repeat; retry it as `Retries` decides."""
        ask = self._channel.unary_unary(method)
        retries = retries_of(self._connection)
        while True:
            try:
                asked = ask.future(request, metadata=self._connection.metadata, timeout=rest_of(deadline))
                return await _answer(asked)
            except grpc.RpcError as error:
                failure = failure_in(error, None)
                pause = retries.pause_seconds(failure, None, None, released=0, now=time.monotonic())
                await asyncio.sleep(min(pause, rest_of(deadline) or pause))

    async def _results(
        self, function: CalledFunction, schema: pa.Schema, input_: "_Input", deadline: float | None
    ) -> AsyncGenerator[pa.RecordBatch]:
        retries = retries_of(self._connection)
        start = self._channel.stream_stream(EXCHANGE_METHOD)
        try:
            while True:
                exchange = Exchange(function, schema, input_.backlog)
                requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
                replies = start(iter(requests.get, None), metadata=self._connection.metadata, timeout=rest_of(deadline))
                attempt = _Attempt(exchange, input_, _Call(requests, replies))
                async with contextlib.aclosing(attempt.results()) as results:
                    async for batch in results:
                        yield batch
                if attempt.failure is None:
                    return
                released, now = input_.backlog.released, time.monotonic()
                pause = retries.pause_seconds(attempt.failure, function, exchange, released=released, now=now)
                await asyncio.sleep(min(pause, rest_of(deadline) or pause))
        except UpdraftError as error:
            raise with_traceback(error) from None
        finally:
            await input_.close()


class _Input:
    """Batches of a call, which a separate task reads while the pool works."""

    def __init__(self) -> None:
        self.changed = asyncio.Condition()
        self.backlog = Backlog()
        self.error: Exception | None = None
        """Exception that the caller's iterable raised."""
        self.on_error: Callable[[], object] = bool
        self._reader: asyncio.Task[None] | None = None
        self._is_closed = False

    def read(self, batches: AsyncGenerator[pa.RecordBatch]) -> None:
        """Start the task that reads."""
        self._reader = asyncio.create_task(self._read(batches))

    async def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        if self._reader is not None:
            await _ended(self._reader)

    async def _read(self, batches: AsyncGenerator[pa.RecordBatch]) -> None:
        try:
            async with contextlib.aclosing(batches):
                async for batch in batches:
                    async with self.changed:
                        self.backlog.add(batch)
                        self.changed.notify_all()
                        await self.changed.wait_for(lambda: self.backlog.has_room)
            async with self.changed:
                self.backlog.is_complete = True
                self.changed.notify_all()
        except BaseException as error:
            if self._is_closed:
                raise
            # Replace a CancelledError, which the caller would mistake for a cancellation of its own task.
            self.error = error if isinstance(error, Exception) else RuntimeError(f"the input ended with {error!r}")
            self.on_error()


class _Call:
    """Call of gRPC's blocking API, used from an event loop. A thread reads the replies.

    `grpc.aio` cannot be used here: after the pool has ended a call, a write fails, and this failure replaces the pool's
    status and hides all unread replies, such as the reply with the function's error.
    """

    def __init__(self, requests: "queue.SimpleQueue[bytes | None]", replies: Any) -> None:
        """Take a started call, which sends the messages of the queue until it finds None."""
        self._requests = requests
        self._replies = replies
        self._loop = asyncio.get_running_loop()
        # The window bounds this queue: with a full window, the exchange sends nothing until `read` has returned
        # replies.
        self._read: asyncio.Queue[bytes | grpc.RpcError | None] = asyncio.Queue()
        threading.Thread(target=self._follow, name="updraft-replies", daemon=True).start()

    async def read(self) -> bytes | None:
        """Return the next reply, or None after the last; raise RpcError if the call failed."""
        reply = await self._read.get()
        if isinstance(reply, grpc.RpcError):
            raise reply
        return reply

    def write(self, message: bytes | None) -> None:
        """Send a message; None ends the requests. If the call has ended, `read` reports why."""
        self._requests.put(message)

    def cancel(self) -> None:
        """End the call."""
        self._replies.cancel()
        self._requests.put(None)

    def _follow(self) -> None:
        try:
            for reply in self._replies:
                self._hand_over(reply)
            self._hand_over(None)
        except grpc.RpcError as error:
            self._hand_over(error)

    def _hand_over(self, reply: bytes | grpc.RpcError | None) -> None:
        # The loop may have been closed while the call went on.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._read.put_nowait, reply)


class _Attempt:
    """One call to the pool."""

    def __init__(self, exchange: Exchange, input_: _Input, call: _Call) -> None:
        self._exchange = exchange
        self._input = input_
        self._call = call
        self.failure: Failure | None = None
        """Failure that ended the call."""

    async def results(self) -> AsyncGenerator[pa.RecordBatch]:
        """Yield the results."""
        self._input.on_error = self._call.cancel
        sender = asyncio.create_task(self._send())
        try:
            while self._input.error is None and (reply := await self._call.read()) is not None:
                async with self._input.changed:
                    results = self._exchange.take(reply)
                    self._input.changed.notify_all()
                if results is not None:
                    yield results
        except grpc.RpcError as error:
            self.failure = failure_in(error, self._exchange.error)
        finally:
            self._call.cancel()
            await _ended(sender)
        if self._input.error is not None:
            raise self._input.error
        if self.failure is None and not self._exchange.is_finished:
            raise ProtocolError("the call ended before the pool had confirmed its results")

    async def _send(self) -> None:
        self._call.write(self._exchange.first_message())
        while not self._exchange.sent_finish:
            for message in await self._messages():
                self._call.write(message)
        self._call.write(None)

    async def _messages(self) -> list[bytes]:
        async with self._input.changed:
            while not (messages := self._exchange.next_messages()):
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        await self._input.changed.wait()
                except TimeoutError:
                    return [KEEPALIVE]
            self._input.changed.notify_all()
            return messages


async def _answer(asked: Any) -> bytes:
    """Wait for a call with one reply, and return the reply; raise RpcError if the call failed."""
    loop, answered = asyncio.get_running_loop(), asyncio.Event()

    def has_ended(_asked: object) -> None:
        # The loop may have been closed while the call went on.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answered.set)

    asked.add_done_callback(has_ended)
    try:
        await answered.wait()
    finally:
        asked.cancel()
    reply: bytes = asked.result()
    return reply


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    # `await task` would raise CancelledError both if the task was cancelled and if the caller is.
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _batches(
    function: CalledFunction, first: pa.Table, later: AsyncGenerator[Any]
) -> AsyncGenerator[pa.RecordBatch]:
    for batch in cut(first):
        yield batch
    async with contextlib.aclosing(later):
        async for frame in later:
            for batch in cut(with_schema(function.arguments(as_table(frame)), first.schema)):
                yield batch


async def _asynchronous(frames: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Any]:
    if isinstance(frames, AsyncIterable):
        async for frame in frames:
            yield frame
    else:
        for frame in frames:
            yield frame
