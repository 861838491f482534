# SPDX-License-Identifier: Apache-2.0
"""Execution of table functions, which return any number of rows for each row."""

import itertools
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from updraft.functions.arguments import Columns
from updraft.functions.definition import Function, Loaded
from updraft.functions.failures import Explain, wrong_result
from updraft.functions.hints import Form
from updraft.functions.results import ResultColumn

_ROWS_AT_ONCE = 8192
"""Rows in a batch of results. One row may have endless results, so a batch may end before the results of a row do."""


class TableOutput(NamedTuple):
    """Batch of results, with the ends of each row's results."""

    batch: pa.RecordBatch
    row_ends: Sequence[int]
    """For each row whose results end in this batch, in order: the offset just after the row's last result."""


class LoadedTable(Loaded):
    """Loaded table function."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        super().__init__(function, explain)
        self._columns = Columns(function.signature)
        self._takes_rows = function.signature.form is Form.ROWS
        self._results = [
            ResultColumn(function.name, name, value, function.signature.form) for name, value in function.results
        ]
        self._schema = function.result_schema
        self._values_of = _values_of(function)

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results for the rows of a checked batch, in order; raise UserError."""
        if self._takes_rows:
            return (output.batch for output in self._of_rows(batch))
        return self._of_columns(batch)

    def run_joined(self, batch: pa.RecordBatch) -> Iterator[TableOutput]:
        """Yield the results, each with the row that it belongs to; raise UserError."""
        return self._of_rows(batch) if self._takes_rows else self._of_single_rows(batch)

    def _of_rows(self, batch: pa.RecordBatch) -> Iterator[TableOutput]:
        columns = self._columns.of(batch)
        rows = zip(*columns, strict=True) if columns else itertools.repeat((), batch.num_rows)
        held: list[Any] = []
        ends: list[int] = []
        for arguments in rows:
            for row in self._called(arguments):
                held.append(row)
                if len(held) == _ROWS_AT_ONCE:
                    yield TableOutput(self._batch(held), ends)
                    held, ends = [], []
            ends.append(len(held))
        if ends:
            yield TableOutput(self._batch(held), ends)

    def _of_columns(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return map(self._declared, self._called(self._columns.of(batch)))

    def _of_single_rows(self, batch: pa.RecordBatch) -> Iterator[TableOutput]:
        """Call the code with one row at a time, because results for many rows do not show which row each belongs to."""
        held: list[pa.RecordBatch] = []
        held_rows = 0
        ends: list[int] = []
        for row in range(batch.num_rows):
            for some in self._of_columns(batch.slice(row, 1)):
                held.append(some)
                held_rows += some.num_rows
                if held_rows >= _ROWS_AT_ONCE:
                    yield TableOutput(pa.concat_batches(held), ends)
                    held, held_rows, ends = [], 0, []
            ends.append(held_rows)
        if ends:
            empty = pa.RecordBatch.from_pylist([], schema=self._schema)
            yield TableOutput(pa.concat_batches(held or [empty]), ends)

    def _called(self, arguments: Sequence[Any]) -> Iterator[Any]:
        try:
            yield from self.code(*arguments)
        except GeneratorExit:
            raise
        except BaseException as error:
            raise self.raised(error) from error

    def _batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return the batch of rows that the author's code returned as values or records."""
        columns = [
            result.of_values(values) for result, values in zip(self._results, self._values_of(rows), strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _declared(self, returned: Any) -> pa.RecordBatch:
        """Check a batch that the author's code returned and convert it to the declared schema."""
        what = f"function {self.function.name!r}"
        if not isinstance(returned, pa.RecordBatch):
            raise wrong_result(f"{what} must return pyarrow.RecordBatches, not {type(returned).__name__}")
        names = [result.field.name for result in self._results]
        if returned.schema.names != names:
            raise wrong_result(f"{what} returned the columns {returned.schema.names}, but has declared {names}")
        columns = [
            result.of_column(column, returned.num_rows)
            for result, column in zip(self._results, returned.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _values_of(function: Function[Any, Any]) -> Callable[[Sequence[Any]], Sequence[Sequence[Any]]]:
    """Return a function that splits rows into columns; it raises UserError for a row of another class."""
    record = function.record
    if record is None:
        return lambda rows: [rows]
    is_dict = typing.is_typeddict(record)
    expected = dict if is_dict else record
    names = [name for name, _ in function.results]

    def read(rows: Sequence[Any]) -> Sequence[Sequence[Any]]:
        for row in rows:
            if not isinstance(row, expected):
                raise wrong_result(
                    f"function {function.name!r} returned a row of type {type(row).__name__}, not {record.__name__}"
                )
        try:
            if is_dict:
                return [[row[name] for row in rows] for name in names]
            return [[getattr(row, name) for row in rows] for name in names]
        except Exception as error:
            if is_dict and isinstance(error, KeyError):
                raise wrong_result(f"function {function.name!r} returned a row without {error}") from error
            # Catch everything, because an attribute may be a property, which runs the author's code.
            raise wrong_result(f"function {function.name!r} returned a row that cannot be read: {error}") from error

    return read
