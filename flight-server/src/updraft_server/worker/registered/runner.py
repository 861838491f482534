# SPDX-License-Identifier: Apache-2.0
"""Runner of registered functions over an exchange."""

import contextlib
import time
from functools import partial
from typing import cast

import pyarrow as pa

from updraft.errors import ProtocolError
from updraft.functions import Kind
from updraft.functions.aggregates import AggregateCall, LoadedAggregate, Stage
from updraft.functions.loaded import OneToOne
from updraft.functions.tables import LoadedTable
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.channel import ModelChannel
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.registered.functions import RegisteredFunction
from updraft_server.worker.registered.plain_tables import NumberedResults
from updraft_server.worker.registered.requests import Requests
from updraft_server.worker.replies import FreeRunningReplies, TableReplies


def run_batched(function: BatchedFunction, client: ModelClient, exchange: Exchange, requests: Requests) -> None:
    """Send one reply for each request; raises UpdraftError."""
    function.check(requests.schema)
    with contextlib.closing(client):
        # Connect now, so that batches of other exchanges wait for these rows.
        client.connect()
        if exchange.plain:
            # A plain client asks for the schema before it looks for a batch, and there may be no batch.
            exchange.announce(function.result_schema)
        for batch in requests.checked():
            sequence = exchange.consumed
            results = client.call(batch, sequence=sequence) if batch.num_rows else function.no_results()
            exchange.reply(results, sequence=sequence)


_STAGES: dict[int, Stage] = {
    exchange_pb2.AGGREGATE_STAGE_UNSPECIFIED: Stage.WHOLE,
    exchange_pb2.AGGREGATE_STAGE_ACCUMULATE: Stage.ACCUMULATE,
    exchange_pb2.AGGREGATE_STAGE_MERGE: Stage.MERGE,
}


def run_registered(
    registered: RegisteredFunction,
    assignment: Assignment,
    exchange: Exchange,
    model_channel: ModelChannel,
    max_batch_rows: int,
) -> exchange_pb2.Report:
    """Serve the exchange to its end; raises UpdraftError.

    `model_channel` leads to model processes, whose results may have at most `max_batch_rows` rows.
    """
    started = time.monotonic()
    requests = Requests(registered.function, assignment, exchange)
    if (batched := registered.batched) is not None:
        waiting = partial(exchange.loading, registered.as_load)
        client = ModelClient(batched, model_channel, max_batch_rows=max_batch_rows, waiting=waiting)
        run_batched(batched, client, exchange, requests)
    else:
        _run_here(registered, assignment, exchange, requests)
    total_seconds = time.monotonic() - started
    return exchange_pb2.Report(
        total_milliseconds=_milliseconds(total_seconds),
        processing_milliseconds=_milliseconds(total_seconds - requests.waited_seconds),
    )


def _run_here(registered: RegisteredFunction, assignment: Assignment, exchange: Exchange, requests: Requests) -> None:
    match registered.function.kind:
        case Kind.TABLE:
            _run_table(registered, assignment, exchange, requests)
        case Kind.AGGREGATE:
            _run_aggregate(registered, assignment, exchange, requests)
        case _:
            _run_one_to_one(registered, exchange, requests)


def _run_one_to_one(registered: RegisteredFunction, exchange: Exchange, requests: Requests) -> None:
    """Send one reply for each request."""
    function = registered.function
    if function.kind is not Kind.ANY:
        function.arguments.check(requests.schema)
    loaded = cast(OneToOne, registered.load(exchange.loading))
    _announce(exchange, function.results_for(requests.schema))
    for sequence, result in enumerate(loaded.run(requests.checked()), 1):
        exchange.reply(result, sequence=sequence)


def _run_table(registered: RegisteredFunction, assignment: Assignment, exchange: Exchange, requests: Requests) -> None:
    """Send any number of replies; all replies to a request come before the next one is taken."""
    registered.function.arguments.check(requests.schema)
    loaded = cast(LoadedTable, registered.load(exchange.loading))
    results = registered.function.result_schema
    if assignment.plain and not assignment.databend:
        _reply_with_numbers(loaded, results, exchange, requests)
        return
    _announce(exchange, results)
    replies = TableReplies(exchange)
    for batch in requests.checked():
        if assignment.joined:
            for output in loaded.run_joined(batch):
                replies.add_output(output.batch, output.row_ends)
        else:
            for result in loaded.run(batch):
                replies.add(result)


def _reply_with_numbers(loaded: LoadedTable, results: pa.Schema, exchange: Exchange, requests: Requests) -> None:
    """Send results with row numbers in them, for clients that receive nothing but the results."""
    numbered = NumberedResults(results)
    exchange.announce(numbered.schema)
    replies = FreeRunningReplies(exchange)
    for batch in requests.checked():
        for output in loaded.run_joined(batch):
            replies.add(numbered.reply(output.batch, output.row_ends))


def _run_aggregate(
    registered: RegisteredFunction, assignment: Assignment, exchange: Exchange, requests: Requests
) -> None:
    """Send a row for each group, after the last request."""
    if assignment.stage not in _STAGES:
        raise ProtocolError(f"unknown aggregate stage {assignment.stage}")
    call = AggregateCall(_STAGES[assignment.stage], assignment.key_columns, assignment.filtered)
    call.arguments(registered.function, requests.schema)
    loaded = cast(LoadedAggregate, registered.load(exchange.loading))
    aggregation = loaded.begin(requests.schema, call)
    _announce(exchange, aggregation.schema)
    for batch in requests.batches():
        # The batches that the aggregation holds have used none of their own time yet.
        exchange.clock.allow_for(aggregation.held)
        aggregation.add(batch)
    exchange.clock.allow_for(aggregation.held)
    FreeRunningReplies(exchange).add(aggregation.results())


def _announce(exchange: Exchange, schema: pa.Schema | None) -> None:
    """Announce the schema to a plain client, which asks for it before it looks for a batch; there may be no batch."""
    if exchange.plain and schema is not None:
        exchange.announce(schema)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
