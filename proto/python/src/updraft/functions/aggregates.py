# SPDX-License-Identifier: Apache-2.0
"""Execution of aggregates, which return a value for each group of rows, in one stage or in two.

Callers use two stages if they hold the rows of a group in several parts. `ACCUMULATE` turns each part into states, and
`MERGE` turns the states into results. The caller receives the states as Arrow values, and sends them back for `MERGE`.
"""

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft.functions.arguments import Arguments, Columns
from updraft.functions.definition import Function, Loaded
from updraft.functions.failures import wrong_arguments
from updraft.functions.grouping import Grouping, Part
from updraft.functions.hints import Form, Hinted
from updraft.functions.joining import Bounds, Joiner, Rows
from updraft.functions.results import ResultColumn
from updraft.functions.signature import Argument
from updraft.functions.values import to_values

STATE = "state"


class Stage(enum.Enum):
    """Part of an aggregate's work that one exchange does."""

    WHOLE = "arguments in, results out"
    ACCUMULATE = "arguments in, states out"
    MERGE = "states in, results out"


@dataclass(frozen=True)
class AggregateCall:
    """Stage of an exchange, and the meaning of its columns: keys, then an optional filter, then arguments."""

    stage: Stage = Stage.WHOLE
    key_columns: int = 0
    """Number of leading key columns, whose values identify the group of a row."""
    filtered: bool = False
    """Whether a column of bools follows the keys and selects the rows to accumulate."""

    @property
    def leading_columns(self) -> int:
        """Number of columns before the arguments."""
        return self.key_columns + self.filtered

    def arguments(self, function: Function[Any, Any], schema: pa.Schema) -> Arguments:
        """Return the arguments (for MERGE, the states) that follow the keys and the filter; raise ProtocolError."""
        if self.key_columns > len(schema):
            raise wrong_arguments(
                f"function {function.name!r} is called with {self.key_columns} key columns, but there are {len(schema)}"
            )
        if self.filtered:
            kinds = [field.type for field in list(schema)[self.key_columns : self.leading_columns]]
            if kinds != [pa.bool_()]:
                found = f"a column of {kinds[0]}" if kinds else "no column"
                raise wrong_arguments(
                    f"function {function.name!r} is called with a filter, but has {found} after the keys, not one of "
                    "bool"
                )
        arguments = function.arguments
        if self.stage is Stage.MERGE:
            assert function.state is not None
            arguments = Arguments(function.name, [Argument(STATE, function.state)])
        arguments.check(pa.schema(list(schema)[self.leading_columns :]))
        return arguments


class LoadedAggregate(Loaded):
    """Aggregate that can serve any number of exchanges, one after the other."""

    def begin(self, schema: pa.Schema, call: AggregateCall) -> "Aggregation":
        """Begin an exchange whose batches have this schema; raise ProtocolError if the columns do not fit."""
        return Aggregation(self, schema, call)


class Aggregation:
    """Groups of one exchange and their states."""

    def __init__(self, loaded: LoadedAggregate, schema: pa.Schema, call: AggregateCall) -> None:
        function = loaded.function
        self._arguments = call.arguments(function, schema)
        assert function.state is not None
        key_fields = list(schema)[: call.key_columns]
        self._loaded = loaded
        self._call = call
        self._is_merge = call.stage is Stage.MERGE
        self._grouping = Grouping(key_fields)
        self._state = function.state
        self._columns = Columns(function.signature)
        form = Form.ROWS if self._is_merge else function.signature.form
        self._takes_rows = form is Form.ROWS
        self._part_of = _series_part if form is Form.PANDAS else _part
        self._joiner = Joiner(Bounds.of(form))
        self._states: list[Any] = [] if key_fields else [self._called(loaded.code.start)]
        result: tuple[str, Hinted] = (STATE, function.state) if call.stage is Stage.ACCUMULATE else function.results[0]
        self._result = ResultColumn(function.name, *result, Form.ROWS)
        self.schema = pa.schema([*key_fields, self._result.field])
        """Schema of the results: the keys of a group, then the group's result or state."""

    @property
    def held(self) -> int:
        """Number of added batches whose rows have not been accumulated yet."""
        return self._joiner.held

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch; a small batch is held and accumulated together with later batches.

        Raises:
            ProtocolError: The arguments of this batch are invalid; arguments are checked even if the batch is held.
            UserError: The author's code failed, for rows of this batch or of a held batch.
        """
        size_bytes = batch.nbytes
        leading = batch.select(range(self._call.leading_columns))
        if self._call.filtered:
            batch = batch.filter(batch.column(self._call.key_columns))
        arguments = self._arguments.checked(batch.select(range(self._call.leading_columns, batch.num_columns)))
        for rows in self._joiner.add(Rows(leading, arguments, size_bytes)):
            self._group(rows)

    def results(self) -> pa.RecordBatch:
        """Return one row for each group, in the order in which groups appeared; raise UserError.

        Call this once, after the last batch.
        """
        for rows in self._joiner.rest():
            self._group(rows)
        is_finished = self._call.stage is not Stage.ACCUMULATE
        values = self._called(self._finish) if is_finished else self._states
        columns = [*self._grouping.keys(), self._result.of_values(values)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _group(self, rows: Rows) -> None:
        keys = rows.leading.columns[: self._call.key_columns]
        counted = rows.leading.column(self._call.key_columns) if self._call.filtered else None
        order, parts = self._grouping.parts(keys, rows.leading.num_rows, counted)
        while len(self._states) < self._grouping.count:
            self._states.append(self._called(self._loaded.code.start))
        arguments = rows.arguments
        if order is not None and arguments.num_columns:
            arguments = pc.take(arguments, order, boundscheck=False)
        if self._is_merge:
            self._called(self._merge, to_values(arguments.column(0), self._state.from_arrow), parts)
        elif self._takes_rows:
            self._called(self._accumulate_rows, self._columns.of(arguments), parts)
        else:
            self._called(self._accumulate, self._columns.of(arguments), parts)

    def _accumulate_rows(self, columns: Sequence[Sequence[Any]], parts: Sequence[Part]) -> None:
        accumulate = self._loaded.code.accumulate
        for group, start, stop in parts:
            state = self._states[group]
            rows = (
                zip(*(column[start:stop] for column in columns), strict=True)
                if columns
                else itertools.repeat((), stop - start)
            )
            for row in rows:
                state = accumulate(state, *row)
            self._states[group] = state

    def _accumulate(self, columns: Sequence[Any], parts: Sequence[Part]) -> None:
        accumulate = self._loaded.code.accumulate
        part_of = self._part_of
        for group, start, stop in parts:
            self._states[group] = accumulate(self._states[group], *(part_of(each, start, stop) for each in columns))

    def _merge(self, states: Sequence[Any], parts: Sequence[Part]) -> None:
        merge = self._loaded.code.merge
        for group, start, stop in parts:
            merged = self._states[group]
            for state in states[start:stop]:
                merged = merge(merged, state)
            self._states[group] = merged

    def _finish(self) -> Sequence[Any]:
        finish = self._loaded.code.finish
        return [finish(state) for state in self._states]

    def _called(self, call: Any, *arguments: Any) -> Any:
        """Call the author's code; turn any exception into a UserError."""
        try:
            return call(*arguments)
        except BaseException as error:
            raise self._loaded.raised(error) from error


def _part(column: Any, start: int, stop: int) -> Any:
    return column[start:stop]


def _series_part(column: Any, start: int, stop: int) -> Any:
    """Return a slice of a Series with an index that begins at 0; a plain slice would keep the index of the batch."""
    part = column.iloc[start:stop]
    if start:
        # `reset_index` would copy the values.
        part.index = column.index[: stop - start]
    return part
