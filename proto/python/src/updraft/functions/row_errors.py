# SPDX-License-Identifier: Apache-2.0
"""Rows that fail by themselves, where an author wants a null or an error in their place."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from updraft.functions.failures import describe
from updraft.functions.results import ResultColumn


class Outcome(NamedTuple):
    """The results of a batch."""

    column: pa.Array
    """Null where a row failed."""
    errors: dict[int, str]
    """Of the rows that failed, by their numbers in the batch."""


class _Failed(NamedTuple):
    error: str


def called(call: Callable[..., Any], columns: Sequence[Iterable[Any]], rows: int) -> list[Any]:
    """The results of the function for each row, with what `of_values` reads in the place of an exception."""
    arguments = [iter(column) for column in columns]
    results: list[Any] = []
    while len(results) < rows:
        try:
            # Those before the row that fails stay, and the arguments of that row are gone.
            results.extend(map(call, *arguments))
        except Exception as error:
            results.append(_Failed(describe(error)))
        else:
            if len(results) < rows:
                # To `map` it is an end.
                results.append(_Failed("StopIteration"))
    return results


def guarded_async(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The same async function, which returns what `of_values` reads instead of raising an exception."""

    async def called(*args: Any) -> Any:
        try:
            return await call(*args)
        except Exception as error:
            return _Failed(describe(error))

    return called


def of_values(values: Sequence[Any], result: ResultColumn) -> Outcome:
    """The outcome of values, some of which stand in the place of an exception."""
    if _Failed not in set(map(type, values)):
        # Unless one of them is not what the author has declared.
        with contextlib.suppress(Exception):
            return Outcome(result.of_values(values), {})
    errors = {row: value.error for row, value in enumerate(values) if isinstance(value, _Failed)}
    good = [row for row in range(len(values)) if row not in errors]
    try:
        column = result.of_values([values[row] for row in good])
    except Exception:
        # One of them is not what the author has declared: that row fails alone.
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
    """The outcome of code that takes columns: where it fails with many rows it is called with each half of them."""
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
    """Of an error of ours the message says all; of the author's the class does too."""
    from updraft.errors import UserError

    return error.message if isinstance(error, UserError) else describe(error)
