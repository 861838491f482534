# SPDX-License-Identifier: Apache-2.0
"""Runs a registered function over an exchange."""

import time

import pyarrow as pa

from updraft.errors import UserError
from updraft.v1 import exchange_pb2
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.door import Door
from updraft_server.worker.model.function import as_batched
from updraft_server.worker.registered.batched import run_batched
from updraft_server.worker.registered.functions import RegisteredFunction
from updraft_server.worker.user_exceptions import user_error


def run_registered(
    function: RegisteredFunction, exchange: Exchange, door: Door, max_batch_rows: int
) -> exchange_pb2.Report:
    """One reply for each request; raises UpdraftError."""
    if (batched := as_batched(function)) is not None:
        client = ModelClient(
            batched,
            door,
            may_repeat=batched.deterministic,
            max_batch_rows=max_batch_rows,
            waiting=exchange.clock.paused,
        )
        return run_batched(batched, client, exchange)
    started = time.monotonic()
    if exchange.plain and function.result_schema is not None:
        # A plain client asks for the schema before it looks for a batch, of which there may be none.
        exchange.announce(function.result_schema(exchange.schema))
    processing_seconds = 0.0
    while (request := exchange.take()) is not None:
        called = time.monotonic()
        result = _call(function, request.batch)
        processing_seconds += time.monotonic() - called
        exchange.reply(result, sequence=exchange.consumed)
    return exchange_pb2.Report(
        total_milliseconds=_milliseconds(time.monotonic() - started),
        processing_milliseconds=_milliseconds(processing_seconds),
    )


def _call(function: RegisteredFunction, batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        result = function.call(batch)
    except BaseException as error:
        raise user_error(error) from error
    if not isinstance(result, pa.RecordBatch):
        raise UserError(f"function {function.name!r} must return a RecordBatch, not {type(result).__name__}")
    if result.num_rows != batch.num_rows:
        raise UserError(f"function {function.name!r} returned {result.num_rows} rows for {batch.num_rows}")
    return result


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
