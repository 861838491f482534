# SPDX-License-Identifier: Apache-2.0
"""Execution of functions that return a value for each row, with the author's policy for failed rows."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from updraft.functions import row_errors
from updraft.functions.awaited import Awaited
from updraft.functions.columns import Columns
from updraft.functions.definition import ErrorPolicy, Function, error_struct
from updraft.functions.failures import Explain, raised, wrong_result
from updraft.functions.forms import Form
from updraft.functions.instance import Instance
from updraft.functions.results import ResultColumn


class LoadedScalar:
    """Loaded function that returns one result for each row."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        self._function = function
        self._explain = explain
        self._instance = Instance(function)
        signature = function.signature
        self._takes_rows = signature.form is Form.ROWS
        self._columns = Columns(signature)
        ((name, value),) = function.results
        self._result = ResultColumn(function.name, name, value, signature.form)
        self._schema = function.result_schema
        self._awaited = Awaited(function.concurrency) if signature.is_async else None

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one."""
        self._instance.warm_up()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each checked batch, in order, possibly reading batches ahead; raise UserError."""
        if self._function.signature.takes_iterator:
            return self._iterated(iter(batches))
        return map(self.alone, batches)

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of a batch with rows of several callers; raise whatever the author's code raises."""
        return self._finished(row_errors.Outcome(self._called(batch), {}))

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of one caller's batch, with the author's policy for failed rows; raise UserError."""
        is_strict = self._function.on_error is ErrorPolicy.RAISE
        return self._finished(self._strict(batch) if is_strict else self._tolerant(batch))

    def _called(self, batch: pa.RecordBatch) -> pa.Array:
        return self._column(self._returned(batch), batch.num_rows)

    def _returned(self, batch: pa.RecordBatch) -> Any:
        """Return what the author's code returns: a list of values, or a column."""
        call, columns = self._instance.call, self._columns.of(batch)
        if not self._takes_rows:
            return call(*columns) if self._awaited is None else self._awaited.call(call, columns)
        if self._awaited is not None:
            return self._awaited.rows(call, columns, batch.num_rows)
        if not columns:
            return [call() for _ in range(batch.num_rows)]
        results = list(map(call, *columns))
        if len(results) < batch.num_rows:
            # `map` ends early if the function raises StopIteration.
            raise RuntimeError("the function raised StopIteration")
        return results

    def _returned_or_failed(self, batch: pa.RecordBatch) -> list[Any]:
        """Return a list of values, with markers in place of failures."""
        call, columns, rows = self._instance.call, self._columns.of(batch), batch.num_rows
        if self._awaited is not None:
            return self._awaited.rows(row_errors.guarded_async(call), columns, rows)
        if columns:
            return row_errors.called(call, columns, rows)
        return row_errors.called(lambda _: call(), [range(rows)], rows)

    def _column(self, returned: Any, rows: int) -> pa.Array:
        return self._result.of_values(returned) if self._takes_rows else self._result.of_column(returned, rows)

    def _strict(self, batch: pa.RecordBatch) -> row_errors.Outcome:
        try:
            returned = self._returned(batch)
        except BaseException as error:
            raise self._raised(error) from error
        return row_errors.Outcome(self._column(returned, batch.num_rows), {})

    def _tolerant(self, batch: pa.RecordBatch) -> row_errors.Outcome:
        try:
            if not self._takes_rows:
                return row_errors.of_batch(batch, self._called, self._result.field.type)
            return row_errors.of_values(self._returned_or_failed(batch), self._result)
        except BaseException as error:
            # A BaseException such as SystemExit fails the call, not just a row.
            raise self._raised(error) from error

    def _finished(self, outcome: row_errors.Outcome) -> pa.RecordBatch:
        """Return the results in the declared schema, with errors under ErrorPolicy.STRUCT."""
        column, errors = outcome
        if self._function.on_error is ErrorPolicy.STRUCT:
            rows = len(column)
            texts = (
                pa.array([errors.get(row) for row in range(rows)], pa.string())
                if errors
                else pa.nulls(rows, pa.string())
            )
            column = pa.StructArray.from_arrays([column, texts], fields=list(error_struct(column.type)))
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def _raised(self, error: BaseException) -> Exception:
        self._explain(error)
        return raised(error)

    def _iterated(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the author's code once with an iterator; it may take several batches before it returns a result."""
        rows: deque[int] = deque()
        broken: list[BaseException] = []

        def columns() -> Iterator[Any]:
            while True:
                try:
                    batch = next(batches, None)
                except BaseException as error:
                    broken.append(error)
                    raise
                if batch is None:
                    return
                rows.append(batch.num_rows)
                taken = tuple(self._columns.of(batch))
                yield taken[0] if len(taken) == 1 else taken

        name = self._function.name
        try:
            results = iter(self._instance.call(columns()))
        except BaseException as error:
            raise self._raised(error) from error
        while True:
            try:
                returned = next(results, None)
            except BaseException as error:
                raise self._raised(error) from error
            finally:
                # An error of the input batches takes precedence over whatever the author's code raised because of it.
                if broken:
                    raise broken[0]
            if returned is None:
                break
            if not rows:
                raise wrong_result(f"function {name!r} gave a result before it had taken a batch for it")
            yield self._finished(row_errors.Outcome(self._result.of_column(returned, rows.popleft()), {}))
        if rows or next(batches, None) is not None:
            raise wrong_result(f"function {name!r} ended before it had given a result for each batch")
