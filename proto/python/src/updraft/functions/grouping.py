# SPDX-License-Identifier: Apache-2.0
"""Brings the rows of one group in a batch together, and finds the same group again in later batches."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds


class Part(NamedTuple):
    """The rows of a group in one batch."""

    group: int
    start: int
    stop: int
    """Among the rows in the order that came with it."""


class Grouping:
    """Groups by the values of key columns, numbered as they come; two nulls are equal, and so are two NaNs."""

    def __init__(self, keys: Sequence[pa.Field]) -> None:
        """Without keys there is one group, which has all rows and is there before any."""
        self._fields = keys
        self._groups: dict[Any, int] = {} if keys else {(): 0}
        self._first_rows: list[Sequence[pa.Array]] = []

    @property
    def count(self) -> int:
        """Of the groups so far."""
        return len(self._groups)

    def parts(self, keys: Sequence[pa.Array], rows: int) -> tuple[pa.Array | None, Sequence[Part]]:
        """The groups of a batch, and the order in which its rows have to be taken for that; None: as they are."""
        if not rows:
            return None, []
        if not keys:
            return None, [Part(0, 0, rows)]
        codes = _codes(keys)
        order = pc.array_sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order))
        stops = runs.run_ends.to_pylist()
        starts = [0, *stops[:-1]]
        firsts = order.take(pa.array(starts, pa.int64()))
        groups = self._numbers([key.take(firsts) for key in keys])
        parts = [Part(*part) for part in zip(groups, starts, stops, strict=True)]
        return (None if len(parts) == 1 else order), parts

    def keys(self) -> Sequence[pa.Array]:
        """The key columns of all groups, in the order of their numbers."""
        columns = zip(*self._first_rows, strict=True) if self._first_rows else ([] for _ in self._fields)
        return [
            pa.concat_arrays(parts) if parts else pa.array([], field.type)
            for field, parts in zip(self._fields, columns, strict=True)
        ]

    def _numbers(self, keys: Sequence[pa.Array]) -> Sequence[int]:
        """Of the groups with these keys, each of which is there once."""
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


def _codes(keys: Sequence[pa.Array]) -> pa.Array:
    """A number for each row, the same where all keys are."""
    codes: pa.Array | None = None
    for key in keys:
        own, count = _coded(key)
        if codes is not None:
            # Both are less than the number of rows.
            own, _ = _coded(pc.add(pc.multiply(codes.cast(pa.int64()), count), own.cast(pa.int64())))
        codes = own
    return codes


def _coded(key: pa.Array) -> tuple[pa.Array, int]:
    try:
        encoded = pc.dictionary_encode(key, null_encoding="encode")
    except pa.ArrowNotImplementedError:
        # Arrow has no dictionaries of nested values.
        known: dict[Any, int] = {}
        numbers = [known.setdefault(value, len(known)) for value in _hashable(key)]
        return pa.array(numbers, pa.int32()), len(known)
    return encoded.indices, len(encoded.dictionary)


def _hashable(key: pa.Array) -> Sequence[Any]:
    kind = key.type
    if kinds.is_temporal(kind) and kind.bit_width in (32, 64):
        # Python's own have no nanoseconds.
        key = key.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    values = key.to_pylist()
    return [_frozen(value) for value in values] if kinds.is_nested(kind) or kinds.is_floating(kind) else values


def _frozen(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple((name, _frozen(member)) for name, member in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
