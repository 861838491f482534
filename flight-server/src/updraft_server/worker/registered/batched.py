# SPDX-License-Identifier: Apache-2.0
"""Runs a batched function over an exchange: its rows are called in the function's own process, with those of others."""

import contextlib
import time

import pyarrow as pa

from updraft.v1 import exchange_pb2
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.function import BatchedFunction


def run_batched(function: BatchedFunction, client: ModelClient, exchange: Exchange) -> exchange_pb2.Report:
    """One reply for each request; raises UpdraftError."""
    started = time.monotonic()
    processing_seconds = 0.0
    with contextlib.closing(client):
        # Now, so that others who fill a batch wait for the rows to come.
        client.connect()
        if exchange.plain:
            # A plain client asks for the schema before it looks for a batch, of which there may be none.
            exchange.announce(function.result_schema)
        while (request := exchange.take()) is not None:
            called = time.monotonic()
            result = _called(function, client, request.batch, exchange.consumed)
            processing_seconds += time.monotonic() - called
            exchange.reply(result, sequence=exchange.consumed)
    return exchange_pb2.Report(
        total_milliseconds=int((time.monotonic() - started) * 1000),
        processing_milliseconds=int(processing_seconds * 1000),
    )


def _called(function: BatchedFunction, client: ModelClient, batch: pa.RecordBatch, sequence: int) -> pa.RecordBatch:
    arguments = function.checked(batch)
    if not arguments.num_rows:
        return _empty(function.result_schema)
    return client.call(arguments, sequence=sequence)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
