# SPDX-License-Identifier: Apache-2.0
"""Grouping of rows by key; a key has the same group in every batch."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds


class Part(NamedTuple):
    """Rows of a group in one batch: positions `start` to `stop` in the order that `Grouping.parts` returns."""

    group: int
    start: int
    stop: int


class Grouping:
    """Groups by the values of key columns, numbered in order of appearance. Nulls are equal, and so are NaNs."""

    def __init__(self, keys: Sequence[pa.Field]) -> None:
        """Create a grouping without groups or, if there are no keys, with one group for all rows."""
        self._fields = keys
        self._groups: dict[Any, int] = {} if keys else {(): 0}
        self._first_rows: list[Sequence[pa.Array]] = []

    @property
    def count(self) -> int:
        """Number of groups so far."""
        return len(self._groups)

    def parts(
        self, keys: Sequence[pa.Array], rows: int, counted: pa.Array | None = None
    ) -> tuple[pa.Array | None, Sequence[Part]]:
        """Return how to order a batch's rows by group (None keeps their order), and the parts of the ordered rows.

        `counted` is a column of bools. Rows in which `counted` is not true create groups too, but belong to no part.
        The order then consists of positions among the remaining rows.
        """
        if not rows:
            return None, []
        if not keys:
            rows = rows if counted is None else counted.true_count
            return None, [Part(0, 0, rows)] if rows else []
        codes, distinct = _coded(keys)
        groups = self._numbers(distinct)
        if counted is not None:
            codes = codes.filter(counted)
        if not len(codes):
            return None, []
        if len(groups) == 1:
            return None, [Part(groups[0], 0, len(codes))]
        order = pc.array_sort_indices(codes)
        runs = pc.run_end_encode(pc.take(codes, order, boundscheck=False))
        stops = runs.run_ends.to_pylist()
        starts = [0, *stops[:-1]]
        numbers = (groups[code] for code in runs.values.to_pylist())
        return order, [Part(*part) for part in zip(numbers, starts, stops, strict=True)]

    def keys(self) -> Sequence[pa.Array]:
        """Return the key columns of all groups, in the order of their numbers."""
        columns = zip(*self._first_rows, strict=True) if self._first_rows else ([] for _ in self._fields)
        return [
            pa.concat_arrays(parts) if parts else pa.array([], field.type)
            for field, parts in zip(self._fields, columns, strict=True)
        ]

    def _numbers(self, keys: Sequence[pa.Array]) -> Sequence[int]:
        """Return the numbers of the groups with these distinct keys; add new groups."""
        numbers, new = [], []
        for row, key in enumerate(zip(*map(_hashable, keys), strict=True)):
            number = self._groups.get(key)
            if number is None:
                number = self._groups[key] = len(self._groups)
                new.append(row)
            numbers.append(number)
        if new:
            rows = pa.array(new, pa.int64())
            self._first_rows.append([key.take(rows) for key in keys])
        return numbers


def _coded(keys: Sequence[pa.Array]) -> tuple[pa.Array, Sequence[pa.Array]]:
    """Return a code for each row, equal where all keys are equal, and the keys of each code."""
    codes, distinct = _coded_key(keys[0])
    columns = [distinct]
    for key in keys[1:]:
        own, distinct = _coded_key(key)
        count = len(distinct)
        # This cannot overflow, because neither factor exceeds the number of rows.
        codes, both = _coded_key(pc.add(pc.multiply(codes.cast(pa.int64()), count), own.cast(pa.int64())))
        before = pc.divide(both, count)
        columns = [column.take(before) for column in columns]
        columns.append(distinct.take(pc.subtract(both, pc.multiply(before, count))))
    return codes, columns


def _coded_key(key: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return a code for each row, counted from 0 in order of appearance, and the value of each code."""
    try:
        encoded = pc.dictionary_encode(key, null_encoding="encode")
    except pa.ArrowNotImplementedError:
        # Arrow cannot encode nested values as a dictionary.
        return _coded_by_python(key)
    return encoded.indices, encoded.dictionary


def _coded_by_python(key: pa.Array) -> tuple[pa.Array, pa.Array]:
    known: dict[Any, int] = {}
    codes: list[int] = []
    firsts: list[int] = []
    for row, value in enumerate(_hashable(key)):
        code = known.setdefault(value, len(known))
        if code == len(firsts):
            firsts.append(row)
        codes.append(code)
    return pa.array(codes, pa.int32()), key.take(pa.array(firsts, pa.int64()))


def _hashable(key: pa.Array) -> Sequence[Any]:
    kind = key.type
    if kinds.is_temporal(kind) and kind.bit_width in (32, 64):
        # Python's times have no nanoseconds, so use Arrow's integers instead.
        key = key.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    values = key.to_pylist()
    return [_frozen(value) for value in values] if kinds.is_nested(kind) or kinds.is_floating(kind) else values


def _frozen(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple((name, _frozen(member)) for name, member in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
