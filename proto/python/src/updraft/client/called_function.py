# SPDX-License-Identifier: Apache-2.0
"""Registered function as a caller sees it: the names and types of its arguments, and the names of its results."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind
from updraft.v1.exchange_pb2 import ExchangeCommand, Limits, RegisteredFunction, TaskIdentity

ROW = "row"
"""Column of a table function's results: number of the input row that a result belongs to, counted from 0."""

_MAX_REPLY_BATCH_BYTES = (2 << 30) - 1
_RESULT = "result"
_INTEGER_DIGITS = 20
_MOST_DIGITS = 76


class CalledFunction:
    """One version of a function, as a caller sees it."""

    def __init__(self, description: FunctionDescription, group_by: Sequence[str] = ()) -> None:
        """Take the pool's description.

        Raises:
            ValueError: `group_by` is given for a function that is not an aggregate.
        """
        self.description = description
        self.name = description.name
        self.keys = tuple(group_by)
        if self.keys and description.kind != FunctionKind.FUNCTION_KIND_AGGREGATE:
            raise ValueError(f"{self.name} is not an aggregate: it takes no group_by")
        self._arguments = _schema(description.argument_schema)
        self._results = _schema(description.result_schema)
        self._default_row = _first_batch(description.default_row)

    @property
    def is_one_to_one(self) -> bool:
        """Whether each input row has exactly one result, in the same order."""
        return self.description.kind in (FunctionKind.FUNCTION_KIND_UNSPECIFIED, FunctionKind.FUNCTION_KIND_SCALAR)

    @property
    def is_table_function(self) -> bool:
        """Whether an input row may have any number of results, including none."""
        return self.description.kind == FunctionKind.FUNCTION_KIND_TABLE

    @property
    def can_be_repeated(self) -> bool:
        """Whether a batch of a lost worker may be sent again: the function is deterministic and one-to-one."""
        return self.is_one_to_one and self.description.deterministic

    @property
    def argument_names(self) -> list[str] | None:
        """Names of the columns that the function reads, keys first; None if it takes any columns."""
        return None if self._arguments is None else [*self.keys, *self._arguments.names]

    @property
    def required(self) -> list[str]:
        """Names of the columns that every call must pass; empty if the function takes any columns."""
        if self._arguments is None:
            return []
        names = self._arguments.names
        return [*self.keys, *names[: len(names) - self.description.arguments_with_default]]

    def argument(self, name: str) -> pa.Field | None:
        """Return the argument of that name, or None."""
        return next((field for field in self._arguments or () if field.name == name), None)

    def command(self) -> ExchangeCommand:
        """Return the command that opens an exchange."""
        description = self.description
        function = RegisteredFunction(
            name=self.name,
            version=description.version,
            key_columns=len(self.keys),
            joined=self.is_table_function,
        )
        return ExchangeCommand(
            protocol_version=PROTOCOL_VERSION,
            registered=function,
            task=TaskIdentity(),
            limits=Limits(max_reply_batch_bytes_in_parts=_MAX_REPLY_BATCH_BYTES),
        )

    def arguments(self, table: pa.Table) -> pa.Table:
        """Return the columns that the pool takes, in its order and types, from a table with columns of those names.

        Raises:
            ValueError: A column is missing, unknown or not unique, or a value does not fit its argument.
            TypeError: A column's type does not fit its argument.
        """
        if len(set(table.column_names)) < table.num_columns:
            raise ValueError(f"the columns {table.column_names} are not unique")
        if self._arguments is None:
            return pa.table([_plain(column) for column in table.columns], names=table.column_names)
        columns, names = self._checked_names(table.column_names)
        fitted = [_plain(table.column(key)) for key in self.keys]
        for name in columns:
            field = self._arguments.field(name)
            if name in names:
                fitted.append(fit(table.column(name), field.type, f"argument {name!r} of {self.name}"))
            else:
                fitted.append(self._default(name, table.num_rows))
        return pa.table(fitted, names=[*self.keys, *columns])

    def empty_results(self, inputs: pa.Schema) -> pa.Table | None:
        """Return an empty table of results, or None if its schema is unknown; `arguments` has returned `inputs`."""
        if self._results is None:
            return None
        keys = [inputs.field(key) for key in self.keys]
        return self._named(pa.schema([*keys, *self._results]).empty_table())

    def named(self, results: pa.RecordBatch, inputs: pa.Schema, rows: pa.Array | None) -> pa.RecordBatch:
        """Return a batch of results with the column names that the caller expects.

        Args:
            results: Batch from the pool.
            inputs: Schema of the columns that were sent.
            rows: For a table function, the number of the input row of each result.
        """
        if self.description.kind == FunctionKind.FUNCTION_KIND_AGGREGATE:
            return results.rename_columns([*self.keys, _RESULT])
        names = inputs.names if self._results is None else self._results.names
        if len(names) == results.num_columns:
            results = results.rename_columns(names)
        if rows is None or ROW in names:
            return results
        return pa.RecordBatch.from_arrays([rows, *results.columns], names=[ROW, *results.schema.names])

    def _named(self, results: pa.Table) -> pa.Table:
        if self.is_table_function and ROW not in results.column_names:
            return results.add_column(0, pa.field(ROW, pa.int64()), pa.array([], pa.int64()))
        return results

    def _checked_names(self, given: Sequence[str]) -> tuple[list[str], set[str]]:
        """Return the names of the arguments to send, and the names of the arguments that the caller passes."""
        assert self._arguments is not None
        known = self._arguments.names
        takes = f"{self.name} takes {', '.join(known)}"
        for name in given:
            if name not in known and name not in self.keys:
                raise ValueError(f"{self.name} has no argument {name!r}: {takes}")
        for name in self.required:
            if name not in given:
                raise ValueError(f"column {name!r} is missing: {takes}")
        names = {name for name in known if name in given}
        # Leave out missing arguments at the end: the pool fills in their defaults.
        last = max((known.index(name) for name in names), default=-1)
        # A batch without columns would lose its number of rows, so send at least one default.
        return known[: max(last + 1, 1)], names

    def _default(self, name: str, rows: int) -> pa.Array:
        if self._default_row is None:
            raise ValueError(
                f"the pool does not send the default of {self.name}'s argument {name!r}, because it is large: pass a "
                "column for the argument"
            )
        return pa.repeat(self._default_row.column(name)[0], rows)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with plain values, instead of a dictionary or views."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pt.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pt.is_binary_view(column.type) else column


def fit(column: pa.ChunkedArray, wanted: pa.DataType, what: str) -> pa.ChunkedArray:
    """Return a column in another type; raise TypeError or ValueError about `what` if that would change a value."""
    column = _plain(column)
    given = column.type
    if given == wanted:
        return column
    if not _widens(given, wanted):
        raise TypeError(f"{what} is {wanted}, not {given}: cast it before the call")
    try:
        if pt.is_integer(given) and pt.is_decimal(wanted):
            # Arrow compares only types: it refuses 1 as decimal(10, 2), because other int64 values have more digits.
            scale = max(0, wanted.scale)
            column = pc.cast(column, pa.decimal256(min(_MOST_DIGITS, _INTEGER_DIGITS + scale), scale))
        return pc.cast(column, wanted, safe=True)
    except pa.ArrowException as error:
        raise ValueError(f"{what} is {wanted}, and a value of type {given} does not fit: {error}") from None


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a checked cast between the types changes no value."""
    for same in (_is_text, _is_binary):
        if same(wanted):
            return same(given) or pt.is_null(given)
    if given == wanted or pt.is_null(given):
        return True
    if _is_list(wanted):
        return _is_list(given) and _widens(given.value_type, wanted.value_type)
    if pt.is_struct(wanted):
        return (
            pt.is_struct(given)
            and [field.name for field in given] == [field.name for field in wanted]
            and all(_widens(ours.type, theirs.type) for ours, theirs in zip(given, wanted, strict=True))
        )
    if pt.is_integer(wanted):
        return bool(pt.is_integer(given) or pt.is_floating(given))
    if pt.is_floating(wanted):
        return bool(pt.is_integer(given) or (pt.is_floating(given) and given.bit_width <= wanted.bit_width))
    if pt.is_decimal(wanted):
        return bool(pt.is_integer(given) or pt.is_decimal(given))
    if pt.is_timestamp(wanted):
        return bool(pt.is_timestamp(given) and given.tz == wanted.tz)
    if pt.is_duration(wanted):
        return bool(pt.is_duration(given))
    return bool(pt.is_time(wanted) and pt.is_time(given)) or bool(pt.is_date(wanted) and pt.is_date(given))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _schema(encoded: bytes) -> pa.Schema | None:
    return pa.ipc.read_schema(pa.py_buffer(encoded)) if encoded else None


def _first_batch(encoded: bytes) -> pa.RecordBatch | None:
    return next(iter(pa.ipc.open_stream(encoded)), None) if encoded else None
