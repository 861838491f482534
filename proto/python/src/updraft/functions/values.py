# SPDX-License-Identifier: Apache-2.0
"""Columns as plain values and back, a batch at a time.

pyarrow makes 1 of 1.5 where a column has integers, bytes of text, and whole seconds of any time where a column has
those: what an author returns is looked at first.
"""

import datetime
import decimal
import itertools
import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.hints import Convert
from updraft.nested_arrays import is_list

_INFINITE_FROM = {pa.float16(): 65520.0, pa.float32(): 2.0**128 - 2.0**103}
"""The smallest number that each type rounds to an infinity."""
_UNIT_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond"}
_ZONED_TIMES = (datetime.datetime, datetime.time)
_PLAIN_TIMES = {*_ZONED_TIMES, datetime.timedelta}


def to_values(column: pa.Array, convert: Convert | None = None) -> list[Any]:
    """The values of a column, None for a null; a map is a list of pairs."""
    values: list[Any] = column.to_pylist()
    return values if convert is None else [convert(value) for value in values]


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of plain values; raises TypeError, ValueError or OverflowError (with pyarrow's among them)."""
    leaves = list(_leaves(values, kind))
    for leaf, of in leaves:
        _check(leaf, of)
    column = pa.array(values, kind)
    narrow = [place for place, (_, of) in enumerate(leaves) if of in _INFINITE_FROM]
    if narrow:
        leaf_columns = list(_leaf_columns(column))
        for place in narrow:
            # Which numbers were finite is asked of the values only where there are infinities.
            if _has_infinity(leaf_columns[place]):
                check_narrowing(pa.array(leaves[place][0], pa.float64()), leaves[place][1])
    return column


def _leaves(values: Iterable[Any], kind: pa.DataType) -> Iterator[tuple[Iterable[Any], pa.DataType]]:
    """The values inside lists, maps and structs, with their types, in the order of `_leaf_columns`."""
    if kinds.is_map(kind):
        pairs = list(itertools.chain.from_iterable(map(_pairs, _present(values))))
        yield from _leaves([key for key, _ in pairs], kind.key_type)
        yield from _leaves([value for _, value in pairs], kind.item_type)
    elif is_list(kind) or kinds.is_fixed_size_list(kind):
        yield from _leaves(list(itertools.chain.from_iterable(_present(values))), kind.value_type)
    elif kinds.is_struct(kind):
        present = _present(values)
        for member in kind:
            yield from _leaves([value.get(member.name) for value in present], member.type)
    else:
        yield values, kind


def _leaf_columns(column: pa.Array) -> Iterator[pa.Array]:
    """Of a column that `pa.array` made: no slice, so that its children are its own."""
    kind = column.type
    if kinds.is_map(kind):
        yield from _leaf_columns(column.keys)
        yield from _leaf_columns(column.items)
    elif is_list(kind) or kinds.is_fixed_size_list(kind):
        yield from _leaf_columns(column.values)
    elif kinds.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _leaf_columns(column.field(place))
    else:
        yield column


def _check(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raises TypeError for a value that pyarrow would cut or reinterpret."""
    classes = set(map(type, values)) - {type(None)}
    for cls in classes:
        if not _fits(cls, kind):
            raise TypeError(f"a value of type {cls.__name__} is no {kind}")
    if kinds.is_timestamp(kind) or kinds.is_time(kind):
        _check_zones(values, kind)
    if kinds.is_timestamp(kind) or kinds.is_time(kind) or kinds.is_duration(kind):
        _check_digits(values, classes, kind)
    if kinds.is_float16(kind):
        integral = {cls for cls in classes if _is_number(cls, numbers.Integral)}
        if integral:
            check_narrowing(pa.array([value for value in values if type(value) in integral], pa.int64()), kind)


def check_narrowing(numbers: pa.Array, kind: pa.DataType) -> None:
    """Raises TypeError for a number that a cast to the type, which may be one of lists, would change too much.

    That is a finite number that becomes infinite, and an integer that float16 rounds: pyarrow refuses those itself for
    the wider types alone.
    """
    while is_list(kind) and is_list(numbers.type):
        numbers, kind = numbers.flatten(), kind.value_type
    if kind not in _INFINITE_FROM:
        return
    # Of the narrow types alone: an import of `updraft.functions` does not wait for it.
    import pyarrow.compute as pc

    is_integer = kinds.is_integer(numbers.type)
    numbers = numbers.cast(pa.float64(), safe=False)
    too_large = numbers.filter(pc.and_(pc.is_finite(numbers), pc.greater_equal(pc.abs(numbers), _INFINITE_FROM[kind])))
    if len(too_large):
        raise TypeError(f"a number as large as {too_large[0].as_py()!r} is no {kind}: declare a wider type")
    if is_integer and kinds.is_float16(kind):
        rounded = numbers.filter(pc.not_equal(numbers, numbers.cast(kind).cast(pa.float64())))
        if len(rounded):
            raise TypeError(f"the integer {rounded[0].as_py():.0f} is no {kind}: declare a wider type")


def _has_infinity(numbers: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.is_inf(numbers).true_count)


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else value


def _fits(cls: type, kind: pa.DataType) -> bool:
    if kinds.is_boolean(kind):
        # NumPy's own is no subclass.
        return cls is bool or cls.__name__ in ("bool", "bool_")
    if kinds.is_integer(kind):
        return _is_number(cls, numbers.Integral)
    if kinds.is_floating(kind):
        return _is_number(cls, numbers.Real)
    if kinds.is_decimal(kind):
        return issubclass(cls, decimal.Decimal) or _is_number(cls, numbers.Integral)
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return issubclass(cls, str)
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind):
        return issubclass(cls, bytes | bytearray | memoryview)
    if kinds.is_date(kind):
        return _is_time(cls, datetime.date, "datetime64") and not issubclass(cls, datetime.datetime)
    if kinds.is_timestamp(kind):
        return _is_time(cls, datetime.datetime, "datetime64")
    if kinds.is_time(kind):
        return issubclass(cls, datetime.time)
    if kinds.is_duration(kind):
        return _is_time(cls, datetime.timedelta, "timedelta64")
    return True


def _check_zones(values: Iterable[Any], kind: pa.DataType) -> None:
    """A time without a zone is no moment, and pyarrow would take it for UTC; the inverse loses its zone."""
    has_zone = kinds.is_timestamp(kind) and kind.tz is not None
    for value in values:
        if isinstance(value, _ZONED_TIMES) and (value.tzinfo is not None) is not has_zone:
            what = "datetime" if isinstance(value, datetime.datetime) else "time"
            zone = "without a time zone" if has_zone else "with a time zone"
            raise TypeError(f"a {what} {zone} is no {kind}: {value!r}")


def _check_digits(values: Iterable[Any], classes: set[type], kind: pa.DataType) -> None:
    """pyarrow cuts what is shorter than the type's unit. Python's own times have microseconds, pandas' nanoseconds."""
    if kind.unit == "ns" or (kind.unit == "us" and classes <= _PLAIN_TIMES):
        return
    suffix = "s" if kinds.is_duration(kind) else ""
    for value in values:
        nanoseconds = getattr(value, f"nanosecond{suffix}", 0)
        microseconds = getattr(value, f"microsecond{suffix}", 0)
        if nanoseconds or microseconds % _UNIT_MICROSECONDS[kind.unit]:
            unit = "ns" if nanoseconds else "us" if microseconds % 1000 else "ms"
            raise TypeError(
                f"a time with parts of a {_UNITS[kind.unit]} is no {kind}: {value!r}; "
                f"round it, or declare a finer unit: {_in_unit(kind, unit)}"
            )


def _in_unit(kind: pa.DataType, unit: str) -> str:
    """The type in another unit, as an author declares it."""
    if kinds.is_duration(kind):
        return f'pa.duration("{unit}")'
    if kinds.is_time(kind):
        return f'pa.time{32 if unit == "ms" else 64}("{unit}")'
    return f'pa.timestamp("{unit}")' if kind.tz is None else f'pa.timestamp("{unit}", "{kind.tz}")'


def _is_time(cls: type, kind: type, of_numpy: str) -> bool:
    return issubclass(cls, kind) or cls.__name__ == of_numpy


def _is_number(cls: type, kind: type) -> bool:
    """A bool is a number to Python alone."""
    return issubclass(cls, kind) and not issubclass(cls, bool)
