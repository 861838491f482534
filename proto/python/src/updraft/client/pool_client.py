# SPDX-License-Identifier: Apache-2.0
"""Client that calls a pool's registered functions, and blocks until it has their results.

with PoolClient(endpoint="grpc://127.0.0.1:8815") as client:
    client.call("greeting", {"name": ["Ada", "Grace"]})
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class PoolClient:
    """Connection to a pool. Any number of threads may use it; as a context manager, it closes itself.

    Every call can raise an `UpdraftError` (`updraft.errors`): `UserError` if the function raised an exception, with the
    function's own traceback in `traceback` and in the error's notes; `FunctionNotFoundError`, `UnauthenticatedError`,
    `PoolUnavailableError` and so on otherwise. The client retries a call for a while if the pool is full or cannot be
    reached. If the pool loses a worker, the client sends the unanswered batches of the call again, provided that the
    function is deterministic and returns one result for each row; a call of any other function fails with
    `WorkerError`.
    """

    def __init__(self, **options: Unpack[ConnectionOptions]) -> None:
        """Prepare the connection; the first call opens it. `ConnectionOptions` describes the options.

        Raises:
            ValueError: No endpoint is named, or an option is malformed.
            CredentialsError: A file with a token or a certificate cannot be read.
        """
        self._connection = Connection.of(options)
        credentials = self._connection.grpc_credentials
        target = self._connection.endpoint.target
        self._channel = (
            grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        )

    @overload
    def call(self, name: str, data: Columns, *, group_by: Sequence[str] = ()) -> pa.Table: ...
    @overload
    def call(self, name: str, data: Frame, *, group_by: Sequence[str] = ()) -> Frame: ...
    def call(self, name: str, data: Any, *, group_by: Sequence[str] = ()) -> Any:
        """Call a function with a whole table, and return all results.

        Args:
            name: Name of the function, or `name@version`; without a version, the pool chooses its newest.
            data: Table with a column for each argument, by name: a dictionary of columns, a pyarrow Table or
                RecordBatch, a pandas or polars DataFrame, or any table with the Arrow PyCapsule interface. Arguments
                with defaults may be left out. The client casts values to the argument's type if the cast changes no
                value.
            group_by: Columns that form the groups of an aggregate.

        Returns:
            The results, as a frame of the library of `data`: pandas (with the index of `data`, if there is one result
            for each row), polars, otherwise a pyarrow Table. A table function's results begin with the column `row`,
            the number of the row that they belong to, counted from 0.

        Raises:
            UpdraftError: The call failed.
            ValueError: A column is missing, unknown or does not fit.
            TypeError: `data` is not a table, or a column has a wrong type.
        """
        deadline = self._deadline()
        function = self._function(name, group_by, deadline)
        arguments = function.arguments(as_table(data))
        results = list(self._results(function, arguments.schema, cut(arguments), deadline, held=True))
        return like(data, results_as_table(results, function, arguments.schema), same_rows=function.is_one_to_one)

    def stream(self, name: str, data: Any, *, group_by: Sequence[str] = ()) -> Iterator[Any]:
        """Call a function, and yield its results as they arrive, in bounded memory.

        A separate thread reads `data`, and the client sends rows to the function as they arrive. So `data` may be slow
        or endless. Close the iterator to end the call and free the worker.

        Args:
            name: As for `call`.
            data: Iterable of tables, each as for `call`; a reader of record batches; or one table.
            group_by: As for `call`.

        Yields:
            Frames of the library of the first table: of pandas, of polars, otherwise pyarrow Tables. Each holds the
            results of one batch, not of one table of `data`: the client cuts large tables into batches.

        Raises:
            UpdraftError: The call failed.
            ValueError: As for `call`.
            TypeError: As for `call`.
        """
        deadline = self._deadline()
        function = self._function(name, group_by, deadline)
        frames = iter(in_pieces(data))
        first = next(frames, None)
        if first is None:
            return
        arguments = function.arguments(as_table(first))
        schema = arguments.schema
        later = (with_schema(function.arguments(as_table(frame)), schema) for frame in frames)
        batches = itertools.chain.from_iterable(map(cut, itertools.chain([arguments], later)))
        for batch in self._results(function, schema, batches, deadline, held=False):
            yield like(first, pa.Table.from_batches([batch]), same_rows=False)

    def describe(self, name: str) -> FunctionDescription:
        """Return the pool's description of a function, or of `name@version`.

        Raises:
            UpdraftError: The pool has no such function, or the call failed.
        """
        return self._describe(name, self._deadline())

    def output(
        self,
        *,
        of_all: bool = False,
        fields: Mapping[str, str] = ANY_FIELDS,
        lines: int = 100,
        after_microseconds: int = 0,
        wait_seconds: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Return the last lines that functions printed in your own calls, the oldest first.

        Each line is a dictionary with `line`, `time_microseconds` (since 1970), `worker`, `function`, and the fields of
        a Spark task. The pool recognises your calls by your identity, or by the option `log_key_file`.

        Args:
            of_all: Return lines of all callers; this needs an identity with the scope admin.
            fields: Values that the fields of a line must have: `{"function": "greeting"}`.
            lines: Maximum number of lines.
            after_microseconds: `time_microseconds` of the last line that you have.
            wait_seconds: How long to wait if there is no such line yet; the pool waits 20 seconds at most.

        Raises:
            UpdraftError: The call failed.
        """
        request = output_action(
            self._connection,
            of_all=of_all,
            fields=fields,
            lines=lines,
            after_microseconds=after_microseconds,
            wait_seconds=wait_seconds,
        )
        return list(result_in(self._answer(ACTION_METHOD, request, self._deadline()))["lines"])

    def profile(self, name: str = "", *, seconds: float = 10.0, of_all: bool = False) -> Profile:
        """Sample where your own running calls spend their time, and return the samples.

        Args:
            name: Name of the function; empty for all functions.
            seconds: How long to sample, at most 60 seconds.
            of_all: Sample the calls of all callers, if the pool's operator allows this.

        Raises:
            UpdraftError: The call failed.
        """
        request = profile_action(self._connection, name, seconds=seconds, of_all=of_all)
        return Profile.of(result_in(self._answer(ACTION_METHOD, request, self._deadline())))

    def close(self) -> None:
        """Close the connection; running calls end."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _deadline(self) -> float | None:
        limit = self._connection.timeout_seconds
        return None if limit is None else time.monotonic() + limit

    def _function(self, name: str, group_by: Sequence[str], deadline: float | None) -> CalledFunction:
        return CalledFunction(self._describe(name, deadline), group_by)

    def _describe(self, name: str, deadline: float | None) -> FunctionDescription:
        return description_in(self._answer(FLIGHT_INFO_METHOD, flight_path(name), deadline))

    def _answer(self, method: str, request: bytes, deadline: float | None) -> bytes:
        """Return the answer to a request that is safe to repeat; retry it as `Retries` decides."""
        ask = self._channel.unary_unary(method)
        retries = retries_of(self._connection)
        while True:
            try:
                return bytes(ask(request, metadata=self._connection.metadata, timeout=rest_of(deadline)))
            except grpc.RpcError as error:
                failure = failure_in(error, None)
                pause = retries.pause_seconds(failure, None, None, released=0, now=time.monotonic())
                time.sleep(min(pause, rest_of(deadline) or pause))

    def _results(
        self,
        function: CalledFunction,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        deadline: float | None,
        *,
        held: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results for batches; `held` says that all batches are in memory, so no thread has to read them."""
        input_ = _Input(batches, held=held)
        retries = retries_of(self._connection)
        start = self._channel.stream_stream(EXCHANGE_METHOD)
        try:
            while True:
                with input_.changed:
                    exchange = Exchange(function, schema, input_.backlog)
                attempt = _Attempt(exchange, input_)
                yield from attempt.results(
                    lambda requests: start(requests, metadata=self._connection.metadata, timeout=rest_of(deadline))
                )
                if attempt.failure is None:
                    return
                released, now = input_.backlog.released, time.monotonic()
                pause = retries.pause_seconds(attempt.failure, function, exchange, released=released, now=now)
                time.sleep(min(pause, rest_of(deadline) or pause))
        except UpdraftError as error:
            raise with_traceback(error) from None
        finally:
            input_.close()


class _Input:
    """Batches of a call. A separate thread reads them while the pool works, unless all are in memory already."""

    def __init__(self, batches: Iterable[pa.RecordBatch], *, held: bool) -> None:
        self.changed = threading.Condition()
        self.backlog = Backlog()
        self.error: BaseException | None = None
        """Exception that the caller's iterable raised."""
        self.on_error: Callable[[], object] = bool
        self._closed = False
        if held:
            for batch in batches:
                self.backlog.add(batch)
            self.backlog.is_complete = True
        else:
            threading.Thread(target=self._read, args=(iter(batches),), name="updraft-input", daemon=True).start()

    def close(self) -> None:
        """Stop reading."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self._closed or self.backlog.has_room)
                    if self._closed:
                        return
                batch = next(batches, None)
                with self.changed:
                    if batch is None:
                        self.backlog.is_complete = True
                    else:
                        self.backlog.add(batch)
                    self.changed.notify_all()
                if batch is None:
                    return
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
            self.on_error()


class _Attempt:
    """One call to the pool."""

    def __init__(self, exchange: Exchange, input_: _Input) -> None:
        self._exchange = exchange
        self._input = input_
        self._ended = False
        self.failure: Failure | None = None
        """Failure that ended the call."""

    def results(self, start: Callable[[Iterator[bytes]], Any]) -> Iterator[pa.RecordBatch]:
        """Yield the results."""
        call = start(self._requests())
        self._input.on_error = call.cancel
        try:
            if self._input.error is None:
                for reply in call:
                    with self._input.changed:
                        results = self._exchange.take(reply)
                        self._input.changed.notify_all()
                    if results is not None:
                        yield results
        except grpc.RpcError as error:
            self.failure = failure_in(error, self._exchange.error)
        finally:
            call.cancel()
            with self._input.changed:
                self._ended = True
                self._input.changed.notify_all()
        if self._input.error is not None:
            raise self._input.error
        if self.failure is None and not self._exchange.is_finished:
            raise ProtocolError("the call ended before the pool had confirmed its results")

    def _requests(self) -> Iterator[bytes]:
        yield self._exchange.first_message()
        while True:
            with self._input.changed:
                messages: list[bytes] = []
                while not self._ended and not self._exchange.sent_finish and not messages:
                    messages = self._exchange.next_messages()
                    if not messages and not self._input.changed.wait(KEEPALIVE_SECONDS):
                        messages = [KEEPALIVE]
                if not messages:
                    return
                self._input.changed.notify_all()
            yield from messages
