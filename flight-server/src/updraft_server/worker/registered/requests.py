# SPDX-License-Identifier: Apache-2.0
"""Batches of an exchange on their way to a registered function."""

import time
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types as kinds

from updraft.errors import UpdraftError
from updraft.functions.failures import wrong_arguments
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.registered.functions import AnyFunction

_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def as_declared(given: pa.Schema, arguments: pa.Schema, *, zoneless_is_utc: bool) -> pa.Schema:
    """Return `given` with the argument's own type for each column whose type is another name for that type."""
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
        """Schema of the batches before they are checked."""
        self._is_retyped = assignment.plain and function.argument_schema is not None
        if self._is_retyped:
            self.schema = as_declared(self.schema, function.argument_schema, zoneless_is_utc=assignment.databend)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch in the types of `schema`; raises UpdraftError."""
        while True:
            asked = time.monotonic()
            request = self._exchange.take()
            self.waited_seconds += time.monotonic() - asked
            if request is None:
                return
            yield self._retyped(request.batch) if self._is_retyped else request.batch

    def checked(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch in the types of the function's arguments; raises UpdraftError."""
        for batch in self.batches():
            try:
                checked = self._function.checked(batch)
            except UpdraftError as error:
                # This error counts, whatever the function makes of it.
                self._exchange.fail(error)
            yield checked

    def _retyped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return retyped(batch, self.schema)
        except UpdraftError as error:
            self._exchange.fail(error)
