# SPDX-License-Identifier: Apache-2.0
"""Runner of registered functions over an exchange.

Over plain Flight, replies of table functions contain, for each result, the number of the input row that produced the
result (`updraft.plain_flight`).
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from updraft.errors import LimitError, ProtocolError, UpdraftError
from updraft.functions import Kind
from updraft.functions.aggregates import AggregateCall, LoadedAggregate, Stage
from updraft.functions.failures import wrong_arguments
from updraft.functions.loaded import OneToOne
from updraft.functions.tables import LoadedTable
from updraft.plain_flight import table_schema
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.model.channel import ModelChannel
from updraft_server.worker.model.client import ModelClient
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.registered.functions import AnyFunction, RegisteredFunction
from updraft_server.worker.replies import FreeRunningReplies, TableReplies

_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def as_declared(given: pa.Schema, arguments: pa.Schema, *, zoneless_is_utc: bool) -> pa.Schema:
    """Return `given`. If a column's type has the same values as the declared type, replace it by the declared type."""
    fields = [
        field.with_type(wanted.type)
        if _has_same_values(field.type, wanted.type, zoneless_is_utc=zoneless_is_utc)
        else field
        for field, wanted in zip(given, arguments, strict=False)
    ]
    return pa.schema([*fields, *list(given)[len(fields) :]])


def retyped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of the given schema to the schema that `as_declared` returned; raises ProtocolError."""
    if batch.schema.types == schema.types:
        return batch
    try:
        columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
    except pa.ArrowException as error:
        raise wrong_arguments(f"a value does not have its column's type: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_same_values(given: pa.DataType, wanted: pa.DataType, *, zoneless_is_utc: bool) -> bool:
    if kinds.is_decimal(given) and kinds.is_decimal(wanted):
        return (given.precision, given.scale) == (wanted.precision, wanted.scale)
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        is_utc = given.tz in _UTC or (given.tz is None and zoneless_is_utc)
        return given.unit == wanted.unit and is_utc and wanted.tz in _UTC
    return False


class Requests:
    """Source of an exchange's batches."""

    def __init__(self, function: AnyFunction, assignment: Assignment, exchange: Exchange) -> None:
        self._function = function
        self._exchange = exchange
        self.waited_seconds = 0.0
        """Time spent waiting for the client."""
        self.schema: pa.Schema = exchange.schema
        """Schema of the batches that `batches` yields."""
        self._is_retyped = assignment.plain and function.argument_schema is not None
        if self._is_retyped:
            self.schema = as_declared(self.schema, function.argument_schema, zoneless_is_utc=assignment.databend)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch, with the types of `schema`; raises UpdraftError."""
        while True:
            asked = time.monotonic()
            request = self._exchange.take()
            self.waited_seconds += time.monotonic() - asked
            if request is None:
                return
            yield self._retyped(request.batch) if self._is_retyped else request.batch

    def checked(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch, with the types of the function's arguments; raises UpdraftError."""
        for batch in self.batches():
            try:
                checked = self._function.checked(batch)
            except UpdraftError as error:
                # Record this error, so that the exchange fails even if the function catches the error.
                self._exchange.fail(error)
            yield checked

    def _retyped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return retyped(batch, self.schema)
        except UpdraftError as error:
            self._exchange.fail(error)


_MOST_ROWS = 2**31


class NumberedResults:
    """Converter of a table function's results in one exchange into replies with row numbers."""

    def __init__(self, results: pa.Schema) -> None:
        self.schema = table_schema(results, numbered=True)
        self._row = 0

    def reply(self, results: pa.RecordBatch, row_ends: Sequence[int]) -> pa.RecordBatch:
        """Return the results in the form in which they are sent; raises LimitError.

        `row_ends` has the same meaning as in ReplyMetadata.
        """
        columns = results.columns
        value = columns[0] if len(columns) == 1 else _struct(columns, self.schema.field(1).type)
        return pa.record_batch([self._rows_of(results.num_rows, row_ends), value], schema=self.schema)

    def _rows_of(self, results: int, row_ends: Sequence[int]) -> pa.Array:
        """Return, for each result, the number of its input row, counted from the first row of the exchange."""
        first, self._row = self._row, self._row + len(row_ends)
        if self._row >= _MOST_ROWS:
            raise LimitError(f"the exchange has more than {_MOST_ROWS} rows, the limit for row numbers of 32 bits")
        runs = enumerate(pairwise([0, *row_ends, results]), start=first)
        found = [(end, number) for number, (start, end) in runs if end > start]
        ends, numbers = (pa.array([run[part] for run in found], pa.int32()) for part in (0, 1))
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, numbers))


def _struct(columns: Sequence[pa.Array], kind: pa.StructType) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns), fields=list(kind))


def run_batched(function: BatchedFunction, client: ModelClient, exchange: Exchange, requests: Requests) -> None:
    """Send one reply for each request; raises UpdraftError."""
    function.check(requests.schema)
    with contextlib.closing(client):
        # Connect before the first rows arrive, so that the model's next batch waits for them.
        client.connect()
        if exchange.plain:
            # A plain client waits for the schema even if no batch follows.
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

    `model_channel` connects to model processes. A batch of their results may have at most `max_batch_rows` rows.
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
    """Send any number of replies. Send all replies to a request before taking the next request."""
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
    """Send results with row numbers, for plain Flight clients, which do not receive `row_ends`."""
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
        # Add the time limits of the batches that the aggregation holds and has not processed yet.
        exchange.clock.allow_for(aggregation.held)
        aggregation.add(batch)
    exchange.clock.allow_for(aggregation.held)
    FreeRunningReplies(exchange).add(aggregation.results())


def _announce(exchange: Exchange, schema: pa.Schema | None) -> None:
    """Announce the schema to a plain client, which waits for the schema even if no batch follows."""
    if exchange.plain and schema is not None:
        exchange.announce(schema)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
