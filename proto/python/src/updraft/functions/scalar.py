# SPDX-License-Identifier: Apache-2.0
"""Execution of functions that return a value for each row, with the author's policy for failed rows."""

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from updraft.functions import row_errors
from updraft.functions.arguments import Columns
from updraft.functions.definition import ErrorPolicy, Function, Loaded, error_struct
from updraft.functions.failures import Explain, wrong_result
from updraft.functions.hints import Form
from updraft.functions.results import ResultColumn

_T = TypeVar("_T")


class LoadedScalar(Loaded):
    """Loaded function that returns one result for each row."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        super().__init__(function, explain)
        signature = function.signature
        self._takes_rows = signature.form is Form.ROWS
        self._columns = Columns(signature)
        ((name, value),) = function.results
        self._result = ResultColumn(function.name, name, value, signature.form)
        self._schema = function.result_schema
        self._awaited = Awaited(function.concurrency) if signature.is_async else None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each checked batch, in order, possibly reading batches ahead; raise UserError."""
        if self.function.signature.takes_iterator:
            return self._iterated(iter(batches))
        return map(self.alone, batches)

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of a batch with rows of several callers; raise whatever the author's code raises."""
        return self._finished(row_errors.Outcome(self._called(batch), {}))

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of one caller's batch, with the author's policy for failed rows; raise UserError."""
        is_strict = self.function.on_error is ErrorPolicy.RAISE
        return self._finished(self._strict(batch) if is_strict else self._tolerant(batch))

    def _called(self, batch: pa.RecordBatch) -> pa.Array:
        return self._column(self._returned(batch), batch.num_rows)

    def _returned(self, batch: pa.RecordBatch) -> Any:
        """Return what the author's code returns: a list of values, or a column."""
        call, columns = self.code, self._columns.of(batch)
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
        call, columns, rows = self.code, self._columns.of(batch), batch.num_rows
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
            raise self.raised(error) from error
        return row_errors.Outcome(self._column(returned, batch.num_rows), {})

    def _tolerant(self, batch: pa.RecordBatch) -> row_errors.Outcome:
        try:
            if not self._takes_rows:
                return row_errors.of_batch(batch, self._called, self._result.field.type)
            return row_errors.of_values(self._returned_or_failed(batch), self._result)
        except BaseException as error:
            # A BaseException such as SystemExit fails the call, not just a row.
            raise self.raised(error) from error

    def _finished(self, outcome: row_errors.Outcome) -> pa.RecordBatch:
        """Return the results in the declared schema, with errors under ErrorPolicy.STRUCT."""
        column, errors = outcome
        if self.function.on_error is ErrorPolicy.STRUCT:
            rows = len(column)
            texts = (
                pa.array([errors.get(row) for row in range(rows)], pa.string())
                if errors
                else pa.nulls(rows, pa.string())
            )
            column = pa.StructArray.from_arrays([column, texts], fields=list(error_struct(column.type)))
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def _iterated(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the author's code once with an iterator; the code may read several batches before it yields a result."""
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

        name = self.function.name
        try:
            results = iter(self.code(columns()))
        except BaseException as error:
            raise self.raised(error) from error
        while True:
            try:
                returned = next(results, None)
            except BaseException as error:
                raise self.raised(error) from error
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


class Awaited:
    """Event loop of one function, kept so that the author's sessions and connections stay usable between batches."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        # The first call creates the loop, because the zygote may load the function before it forks workers.
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Any]) -> Any:
        """Call the function once with whole columns; raise whatever it raises."""

        async def called() -> Any:
            return await call(*columns)

        return self._run(called())

    def rows(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Sequence[Any]], rows: int) -> list[Any]:
        """Call the function for each row; the first exception cancels the running calls and is raised."""
        arguments = list(zip(*columns, strict=True)) if columns else [()] * rows
        return self._run(self._rows(call, arguments))

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.new_event_loop()
            # Only close the loop. The garbage collector may run this finalizer at any point, so it must not run the
            # author's code.
            weakref.finalize(self, loop.close)
        return _beside_other_loops(lambda: loop.run_until_complete(coroutine))

    async def _rows(self, call: Callable[..., Awaitable[Any]], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = [None] * len(rows)
        numbers = iter(range(len(rows)))

        async def work() -> None:
            # All tasks take row numbers from the same iterator.
            for number in numbers:
                results[number] = await call(*rows[number])

        tasks = [asyncio.create_task(work()) for _ in range(min(self._concurrency, len(rows)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return results


def _beside_other_loops(call: Callable[[], _T]) -> _T:
    """Run `call`, which runs an event loop; use another thread if this thread already runs a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()
