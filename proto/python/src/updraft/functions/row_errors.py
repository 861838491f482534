# SPDX-License-Identifier: Apache-2.0
"""Per-row failures, for authors who want a null or an error as the result of a failed row."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from updraft.functions.failures import describe
from updraft.functions.results import ResultColumn


class Outcome(NamedTuple):
    """Results of a batch."""

    column: pa.Array
    """Results, null for failed rows."""
    errors: dict[int, str]
    """Errors of failed rows, by row number in the batch."""


class _Failed(NamedTuple):
    error: str


def called(call: Callable[..., Any], columns: Sequence[Iterable[Any]], rows: int) -> list[Any]:
    """Call the function for each row; return its results, with a marker for `of_values` in place of each exception."""
    arguments = [iter(column) for column in columns]
    results: list[Any] = []
    while len(results) < rows:
        try:
            # If this raises, `results` keeps the earlier results, and the iterators are past the failed row's
            # arguments.
            results.extend(map(call, *arguments))
        except Exception as error:
            results.append(_Failed(describe(error)))
        else:
            if len(results) < rows:
                # `map` ends early if the function raises StopIteration.
                results.append(_Failed("StopIteration"))
    return results


def guarded_async(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap an async function so that it returns a marker for `of_values` instead of raising an exception."""

    async def called(*args: Any) -> Any:
        try:
            return await call(*args)
        except Exception as error:
            return _Failed(describe(error))

    return called


def of_values(values: Sequence[Any], result: ResultColumn) -> Outcome:
    """Return the outcome of values, some of which may be markers of exceptions."""
    if _Failed not in set(map(type, values)):
        # Fast path: this fails if a value does not have the declared type.
        with contextlib.suppress(Exception):
            return Outcome(result.of_values(values), {})
    errors = {row: value.error for row, value in enumerate(values) if isinstance(value, _Failed)}
    good = [row for row in range(len(values)) if row not in errors]
    try:
        column = result.of_values([values[row] for row in good])
    except Exception:
        # At least one value does not have the declared type. Only the rows of such values fail.
        parts = {row: _alone(values[row], row, result, errors) for row in good}
        good = [row for row in good if row not in errors]
        column = pa.concat_arrays([parts[row] for row in good]) if good else pa.nulls(0, result.field.type)
    if not errors:
        return Outcome(column, errors)
    places: list[int | None] = [None] * len(values)
    for place, row in enumerate(good):
        places[row] = place
    return Outcome(column.take(pa.array(places, pa.int64())), errors)


def of_batch(batch: pa.RecordBatch, call: Callable[[pa.RecordBatch], pa.Array], kind: pa.DataType) -> Outcome:
    """Return the outcome of code that takes columns; if it fails on several rows, call the code again on each half."""
    errors: dict[int, str] = {}
    parts = list(_parts(batch, 0, call, kind, errors))
    return Outcome(parts[0] if len(parts) == 1 else pa.concat_arrays(parts), errors)


def _parts(
    batch: pa.RecordBatch,
    start: int,
    call: Callable[[pa.RecordBatch], pa.Array],
    kind: pa.DataType,
    errors: dict[int, str],
) -> Iterator[pa.Array]:
    try:
        column = call(batch)
    except Exception as error:
        if batch.num_rows <= 1:
            errors.update(dict.fromkeys(range(start, start + batch.num_rows), _text(error)))
            yield pa.nulls(batch.num_rows, kind)
            return
    else:
        yield column
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half), start, call, kind, errors)
    yield from _parts(batch.slice(half), start + half, call, kind, errors)


def _alone(value: Any, row: int, result: ResultColumn, errors: dict[int, str]) -> pa.Array | None:
    try:
        return result.of_values([value])
    except Exception as error:
        errors[row] = _text(error)
        return None


def _text(error: Exception) -> str:
    """Return the text for a failed row: our own error's message, or the class and message of the author's exception."""
    from updraft.errors import UserError

    return error.message if isinstance(error, UserError) else describe(error)
