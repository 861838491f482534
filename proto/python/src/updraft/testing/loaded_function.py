# SPDX-License-Identifier: Apache-2.0
"""Function loaded in a test as a worker loads it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from updraft.arrow_layout import ArrowLayout, Text
from updraft.dictionary_decoder import DecodedLimit, DictionaryDecoder
from updraft.functions import Function, Kind
from updraft.functions.aggregates import AggregateCall, LoadedAggregate, Stage
from updraft.functions.loaded import OneToOne
from updraft.functions.loaded import load as loaded
from updraft.functions.scalar import LoadedScalar
from updraft.functions.tables import LoadedTable
from updraft.functions.values import to_column
from updraft.reply_checks import check_reply, check_reply_schema

Column: TypeAlias = pa.Array | Sequence[Any]

_NO_KEYS: Mapping[str, Column] = {}
_MOST_ROWS = 2**31
_MOST_BYTES = DecodedLimit(2**31 - 1, "--max-batch-bytes of the pool")


class LoadedFunction:
    """Function that is constructed once and called for any number of exchanges."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Load a function; raise TypeError if it is not registered, or whatever its constructor raises."""
        if not isinstance(function, Function):
            raise TypeError(f"{function!r} is not a registered function: decorate it with @function")
        self._function: Function[..., Any] = function
        self._loaded = loaded(function)
        self._loaded.warm_up()

    def call(self, *columns: Column, batch_rows: int = 0, rows: int = 0) -> pa.Array:
        """Return the results of a function that returns a value for each row, in the order of the rows.

        A function with `batching` gets each batch in parts of at most `Batching.rows` rows.

        Args:
            columns: One column for each argument; arguments at the end that have defaults need no column.
            batch_rows: Rows of each batch that a caller would send; 0 sends all rows in one batch.
            rows: Number of rows for a function without arguments.

        Raises:
            ProtocolError: The function does not accept the arguments.
            UserError: The function's code raised an exception or returned a wrong result.
        """
        self._require(Kind.SCALAR, "call")
        batches = self._checked(_batches(self._batch(columns, rows), batch_rows))
        is_batched = self._function.batching is not None
        results = map(self._in_parts, batches) if is_batched else cast(OneToOne, self._loaded).run(batches)
        return _column([batch.column(0) for batch in _replies(results)], self._function.result_schema)

    def table(self, *columns: Column, batch_rows: int = 0, rows: int = 0) -> pa.Table:
        """Return the results of a table function; arguments and errors are the same as for `call`."""
        self._require(Kind.TABLE, "table")
        batches = self._checked(_batches(self._batch(columns, rows), batch_rows))
        loaded = cast(LoadedTable, self._loaded)
        results = (result for batch in batches for result in loaded.run(batch))
        return pa.Table.from_batches(list(_replies(results)), self._function.result_schema)

    def batches(self, columns: pa.RecordBatch | Mapping[str, Column], *, batch_rows: int = 0) -> pa.Table:
        """Return the results of a function of any columns: one row for each row of the input.

        Args:
            columns: The caller's columns, by the names that the function sees.
            batch_rows: Rows of each batch that a caller would send; 0 sends all rows in one batch.

        Raises:
            ProtocolError: A column cannot be sent to a pool.
            UserError: The function's code raised an exception or returned a wrong result.
        """
        self._require(Kind.ANY, "batches")
        batch = columns if isinstance(columns, pa.RecordBatch) else _named(columns)
        _, received = _received(_batches(batch, batch_rows), batch.schema)
        results = cast(OneToOne, self._loaded).run(received)
        return pa.Table.from_batches(list(_replies(results)))

    def aggregate(
        self,
        *columns: Column,
        keys: Mapping[str, Column] = _NO_KEYS,
        batch_rows: int = 0,
        rows: int = 0,
        parts: int = 1,
    ) -> pa.Table:
        """Return a row for each group, with its keys and the result; errors are the same as for `call`.

        Args:
            columns: One column for each argument.
            keys: Columns whose values identify the group of each row; without keys, all rows form one group.
            batch_rows: Rows of each batch; 0 sends all rows in one batch.
            rows: Number of rows for a function without arguments.
            parts: Number of callers that share the batches; if there are several, their states are merged as in Spark.
        """
        self._require(Kind.AGGREGATE, "aggregate")
        arguments = self._batch(columns, rows or len(next(iter(keys.values()), ())))
        key_arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in keys.values()]
        batch = pa.RecordBatch.from_arrays([*key_arrays, *arguments.columns], [*keys, *arguments.schema.names])
        if not batch.num_columns:
            batch = arguments
        batches = _batches(batch, batch_rows)
        call = AggregateCall(Stage.WHOLE if parts == 1 else Stage.ACCUMULATE, len(keys))
        dealt = [self._aggregated(batches[part::parts], batch.schema, call) for part in range(parts)]
        if parts > 1:
            dealt = [self._aggregated(dealt, dealt[0].schema, AggregateCall(Stage.MERGE, len(keys)))]
        return pa.Table.from_batches(dealt)

    def _in_parts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of a batch as a model process computes them; it never receives an empty batch."""
        assert self._function.batching is not None
        rows = self._function.batching.rows
        model = cast(LoadedScalar, self._loaded)
        parts = [model.alone(batch.slice(start, rows)) for start in range(0, batch.num_rows, rows)]
        return pa.concat_batches(parts or [pa.RecordBatch.from_pylist([], schema=self._function.result_schema)])

    def _aggregated(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema, call: AggregateCall) -> pa.RecordBatch:
        decoded, received = _received(batches, schema)
        aggregation = cast(LoadedAggregate, self._loaded).begin(decoded, call)
        for batch in received:
            aggregation.add(batch)
        (results,) = _replies([aggregation.results()])
        return results

    def _require(self, kind: Kind, name: str) -> None:
        if self._function.kind is not kind:
            raise TypeError(f"{self._function!r} gives {self._function.kind.value}: {name}() is for {kind.value}")

    def _batch(self, columns: Sequence[Column], rows: int) -> pa.RecordBatch:
        """Return the columns as the batch that a caller would send."""
        arguments = self._function.arguments.schema
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        arrays = [
            self._array(column, arguments.field(number) if number < len(arguments) else None)
            for number, column in enumerate(columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, [f"_{number}" for number in range(len(arrays))])

    def _array(self, column: Column, argument: pa.Field | None) -> pa.Array:
        if isinstance(column, pa.ChunkedArray):
            return column.combine_chunks()
        if isinstance(column, pa.Array):
            return column
        if argument is None:
            return pa.array(column)
        signature = next(each for each in self._function.signature.arguments if each.name == argument.name)
        convert = signature.value.to_arrow
        return to_column(column if convert is None else [convert(value) for value in column], argument.type)

    def _checked(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, received = _received(batches, batches[0].schema)
        for batch in received:
            self._function.arguments.check(batch.schema)
            yield self._function.checked(batch)


def load(function: Callable[..., Any]) -> LoadedFunction:
    """Load a function as a worker does; raise whatever its constructor or `warm_up` raises."""
    return LoadedFunction(function)


def call(function: Callable[..., Any], *columns: Column, batch_rows: int = 0, rows: int = 0) -> pa.Array:
    """Load the function and call it once; see `LoadedFunction.call`."""
    return load(function).call(*columns, batch_rows=batch_rows, rows=rows)


def table(function: Callable[..., Any], *columns: Column, batch_rows: int = 0, rows: int = 0) -> pa.Table:
    """Load the function and call it once; see `LoadedFunction.table`."""
    return load(function).table(*columns, batch_rows=batch_rows, rows=rows)


def batches(
    function: Callable[..., Any], columns: pa.RecordBatch | Mapping[str, Column], *, batch_rows: int = 0
) -> pa.Table:
    """Load the function and call it once; see `LoadedFunction.batches`."""
    return load(function).batches(columns, batch_rows=batch_rows)


def aggregate(
    function: Callable[..., Any],
    *columns: Column,
    keys: Mapping[str, Column] = _NO_KEYS,
    batch_rows: int = 0,
    rows: int = 0,
    parts: int = 1,
) -> pa.Table:
    """Load the function and call it once; see `LoadedFunction.aggregate`."""
    return load(function).aggregate(*columns, keys=keys, batch_rows=batch_rows, rows=rows, parts=parts)


def _batches(batch: pa.RecordBatch, batch_rows: int) -> Sequence[pa.RecordBatch]:
    if not batch_rows or not batch.num_rows:
        return [batch]
    return [batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows)]


def _named(columns: Mapping[str, Column]) -> pa.RecordBatch:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _received(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches as a worker receives them: decoded, and refused if they are not valid."""
    decoder = DictionaryDecoder.announced_by(
        schema.serialize(), "the first message", limit=_MOST_BYTES, max_batch_rows=_MOST_ROWS, text=Text.UTF_8
    )
    return decoder.schema, _decoded(batches, schema, decoder)


def _decoded(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, decoder: DictionaryDecoder
) -> Iterator[pa.RecordBatch]:
    for sequence, batch in enumerate(batches, 1):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(batch)
        _, *dictionaries, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
        for dictionary in dictionaries:
            decoder.add_dictionary(dictionary.serialize(), sequence=sequence)
        yield decoder.decode_batch(message.serialize(), sequence=sequence)


def _replies(results: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield results as a worker sends them, after its checks; raise UserError."""
    for result in results:
        check_reply_schema(result.schema)
        check_reply(result, ArrowLayout(result.schema, Text.UTF_8))
        yield result


def _column(parts: Sequence[pa.Array], schema: pa.Schema | None) -> pa.Array:
    if schema is None or parts:
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return pa.nulls(0, schema.field(0).type)
