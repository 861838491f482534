# SPDX-License-Identifier: Apache-2.0
"""Columns as plain values and back, a batch at a time.

pyarrow makes 1 of 1.5 where a column has integers, and bytes of text: what an author returns is looked at first.
"""

import datetime
import decimal
import itertools
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.arrow_types import is_list
from updraft.functions.hints import Convert


def to_values(column: pa.Array, convert: Convert | None = None) -> list[Any]:
    """The values of a column, None for a null; a map is a list of pairs."""
    values: list[Any] = column.to_pylist()
    return values if convert is None else [convert(value) for value in values]


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of plain values; raises TypeError, ValueError or OverflowError (with pyarrow's among them)."""
    _check(values, kind)
    return pa.array(values, kind)


def _check(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raises TypeError for a value that pyarrow would round, cut or reinterpret."""
    if kinds.is_map(kind):
        pairs = list(itertools.chain.from_iterable(map(_pairs, _present(values))))
        _check([key for key, _ in pairs], kind.key_type)
        _check([value for _, value in pairs], kind.item_type)
    elif is_list(kind) or kinds.is_fixed_size_list(kind):
        _check(list(itertools.chain.from_iterable(_present(values))), kind.value_type)
    elif kinds.is_struct(kind):
        present = _present(values)
        for member in kind:
            _check([value.get(member.name) for value in present], member.type)
    else:
        if kinds.is_timestamp(kind):
            _check_zones(values, kind)
        for cls in set(map(type, values)):
            if cls is not type(None) and not _fits(cls, kind):
                raise TypeError(f"a value of type {cls.__name__} is no {kind}")


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
    for value in values:
        if isinstance(value, datetime.datetime) and (value.tzinfo is None) is not (kind.tz is None):
            zone = "without a time zone" if value.tzinfo is None else "with a time zone"
            raise TypeError(f"a datetime {zone} is no {kind}: {value!r}")


def _is_time(cls: type, kind: type, of_numpy: str) -> bool:
    return issubclass(cls, kind) or cls.__name__ == of_numpy


def _is_number(cls: type, kind: type) -> bool:
    """A bool is a number to Python alone."""
    return issubclass(cls, kind) and not issubclass(cls, bool)
