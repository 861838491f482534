# SPDX-License-Identifier: Apache-2.0
"""Runs a registered function over an exchange."""

import time
from collections.abc import Iterator
from typing import cast

import pyarrow as pa

from updraft.errors import FunctionRefusedError, UpdraftError
from updraft.functions import Kind
from updraft.functions.loaded import OneToOne
from updraft.v1 import exchange_pb2
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.registered.functions import AnyFunction, RegisteredFunction


def run_registered(registered: RegisteredFunction, exchange: Exchange) -> exchange_pb2.Report:
    """One reply for each request; raises UpdraftError."""
    started = time.monotonic()
    function = registered.function
    if function.kind not in (Kind.ANY, Kind.SCALAR):
        raise FunctionRefusedError(f"function {function.name!r} gives {function.kind.value}: this pool cannot run it")
    requests = Requests(function, exchange)
    requests.check_schema()
    loaded = cast(OneToOne, registered.load())
    if exchange.plain and (schema := function.results_for(exchange.schema)) is not None:
        # A plain client asks for the schema before it looks for a batch, of which there may be none.
        exchange.announce(schema)
    for sequence, result in enumerate(loaded.run(requests.batches()), 1):
        exchange.reply(result, sequence=sequence)
    total_seconds = time.monotonic() - started
    return exchange_pb2.Report(
        total_milliseconds=_milliseconds(total_seconds),
        processing_milliseconds=_milliseconds(total_seconds - requests.waited_seconds),
    )


class Requests:
    """The batches of an exchange, checked."""

    def __init__(self, function: AnyFunction, exchange: Exchange) -> None:
        self._function = function
        self._exchange = exchange
        self.waited_seconds = 0.0
        """For the client."""

    def check_schema(self) -> None:
        """Raises ProtocolError unless the function takes the exchange's columns."""
        if self._function.kind is not Kind.ANY:
            self._function.arguments.check(self._exchange.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Each batch in the types of the function's arguments; raises UpdraftError."""
        while True:
            asked = time.monotonic()
            request = self._exchange.take()
            self.waited_seconds += time.monotonic() - asked
            if request is None:
                return
            try:
                yield self._function.checked(request.batch)
            except UpdraftError as error:
                # Whatever the function makes of it.
                self._exchange.fail(error)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
