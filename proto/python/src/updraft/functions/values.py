# SPDX-License-Identifier: Apache-2.0
"""Conversion between columns and plain values, a batch at a time.

pyarrow silently converts some values that do not fit: 1.5 to 1 in a column of integers, text to bytes, and times
to whole seconds in a column of seconds. So this module checks an author's values first.
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
"""Smallest number that each type rounds to infinity."""
_UNIT_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond"}
_ZONED_TIMES = (datetime.datetime, datetime.time)
_PLAIN_TIMES = {*_ZONED_TIMES, datetime.timedelta}


def to_values(column: pa.Array, convert: Convert | None = None) -> list[Any]:
    """Return the values of a column, converted. Without a conversion, a null is None and a map is a list of pairs."""
    values: list[Any] = column.to_pylist()
    return values if convert is None else [convert(value) for value in values]


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of plain values; raise TypeError, ValueError or OverflowError, or a subclass from pyarrow."""
    leaves = list(_leaves(values, kind))
    for leaf, of in leaves:
        _check(leaf, of)
    column = pa.array(values, kind)
    narrow = [place for place, (_, of) in enumerate(leaves) if of in _INFINITE_FROM]
    if narrow:
        leaf_columns = list(_leaf_columns(column))
        for place in narrow:
            # If the column has infinities, check whether any of them was a finite number before.
            if _has_infinity(leaf_columns[place]):
                check_narrowing(pa.array(leaves[place][0], pa.float64()), leaves[place][1])
    return column


def _leaves(values: Iterable[Any], kind: pa.DataType) -> Iterator[tuple[Iterable[Any], pa.DataType]]:
    """Yield the values inside lists, maps and structs, with their types, in the order of `_leaf_columns`."""
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
    """Yield the leaf columns of a column made by `pa.array`: it is not a slice, so its children need no offsets."""
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
    """Raise TypeError for a value that pyarrow would truncate or reinterpret."""
    classes = set(map(type, values)) - {type(None)}
    for cls in classes:
        if not _fits(cls, kind):
            raise TypeError(f"a value of type {cls.__name__} does not fit {kind}")
    if kinds.is_timestamp(kind) or kinds.is_time(kind):
        _check_zones(values, kind)
    if kinds.is_timestamp(kind) or kinds.is_time(kind) or kinds.is_duration(kind):
        _check_digits(values, classes, kind)
    if kinds.is_float16(kind):
        integral = {cls for cls in classes if _is_number(cls, numbers.Integral)}
        if integral:
            check_narrowing(pa.array([value for value in values if type(value) in integral], pa.int64()), kind)


def check_narrowing(numbers: pa.Array, kind: pa.DataType) -> None:
    """Raise TypeError for a number that a cast to the type, possibly inside lists, would change too much.

    A change is too much if a finite number becomes infinite, or if float16 would round an integer. pyarrow itself
    refuses rounded integers only for types wider than float16.
    """
    while is_list(kind) and is_list(numbers.type):
        numbers, kind = numbers.flatten(), kind.value_type
    if kind not in _INFINITE_FROM:
        return
    # Import this late, and only for narrow types, so that importing `updraft.functions` stays fast.
    import pyarrow.compute as pc

    is_integer = kinds.is_integer(numbers.type)
    numbers = numbers.cast(pa.float64(), safe=False)
    too_large = numbers.filter(pc.and_(pc.is_finite(numbers), pc.greater_equal(pc.abs(numbers), _INFINITE_FROM[kind])))
    if len(too_large):
        raise TypeError(f"a number as large as {too_large[0].as_py()!r} does not fit {kind}: declare a wider type")
    if is_integer and kinds.is_float16(kind):
        rounded = numbers.filter(pc.not_equal(numbers, numbers.cast(kind).cast(pa.float64())))
        if len(rounded):
            raise TypeError(f"the integer {rounded[0].as_py():.0f} does not fit {kind}: declare a wider type")


def _has_infinity(numbers: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.is_inf(numbers).true_count)


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else value


def _fits(cls: type, kind: pa.DataType) -> bool:
    if kinds.is_boolean(kind):
        # NumPy's bool is not a subclass of bool.
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
    """Raise TypeError for a time whose zone does not fit the type.

    pyarrow would read a time without a zone as UTC, and would drop the zone of a time if the type has none.
    """
    has_zone = kinds.is_timestamp(kind) and kind.tz is not None
    for value in values:
        if isinstance(value, _ZONED_TIMES) and (value.tzinfo is not None) is not has_zone:
            what = "datetime" if isinstance(value, datetime.datetime) else "time"
            zone = "without a time zone" if has_zone else "with a time zone"
            raise TypeError(f"a {what} {zone} does not fit {kind}: {value!r}")


def _check_digits(values: Iterable[Any], classes: set[type], kind: pa.DataType) -> None:
    """Raise TypeError for a time that is finer than the type's unit: pyarrow would truncate it.

    Python's own times have microseconds. The times of pandas have nanoseconds.
    """
    if kind.unit == "ns" or (kind.unit == "us" and classes <= _PLAIN_TIMES):
        return
    suffix = "s" if kinds.is_duration(kind) else ""
    for value in values:
        nanoseconds = getattr(value, f"nanosecond{suffix}", 0)
        microseconds = getattr(value, f"microsecond{suffix}", 0)
        if nanoseconds or microseconds % _UNIT_MICROSECONDS[kind.unit]:
            unit = "ns" if nanoseconds else "us" if microseconds % 1000 else "ms"
            raise TypeError(
                f"a time with parts of a {_UNITS[kind.unit]} does not fit {kind}: {value!r}; "
                f"round it, or declare a finer unit: {_in_unit(kind, unit)}"
            )


def _in_unit(kind: pa.DataType, unit: str) -> str:
    """Return the type in another unit, as an author declares it."""
    if kinds.is_duration(kind):
        return f'pa.duration("{unit}")'
    if kinds.is_time(kind):
        return f'pa.time{32 if unit == "ms" else 64}("{unit}")'
    return f'pa.timestamp("{unit}")' if kind.tz is None else f'pa.timestamp("{unit}", "{kind.tz}")'


def _is_time(cls: type, kind: type, of_numpy: str) -> bool:
    return issubclass(cls, kind) or cls.__name__ == of_numpy


def _is_number(cls: type, kind: type) -> bool:
    """Return whether values of a class are numbers, except bools, which Python counts as numbers."""
    return issubclass(cls, kind) and not issubclass(cls, bool)
