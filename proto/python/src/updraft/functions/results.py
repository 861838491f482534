# SPDX-License-Identifier: Apache-2.0
"""Conversion of results to their declared columns; a result that does not fit is an error of the author's code."""

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.arrow_types import forbidden_null, nan_as_null, retyped, same_type
from updraft.functions.failures import wrong_result
from updraft.functions.hints import Form, Hinted
from updraft.functions.values import check_narrowing, to_column
from updraft.nested_arrays import is_list

_LONGEST_VALUE = 100
"""Maximum number of characters of a value that an error shows."""
_VALUES = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxlong = _VALUES.maxother = _LONGEST_VALUE
_NEVER_MISSING = {str, int, bytes, bool, type(None)}


class ResultColumn:
    """Declared column of results."""

    def __init__(self, function: str, name: str, value: Hinted, form: Form) -> None:
        """Describe a column.

        Args:
            function: Name of the function, for errors.
            name: Name of the column.
            value: Declared type.
            form: Form in which the author's code returns columns.
        """
        self._what = f"function {function!r}" if name == "result" else f"{name!r} of function {function!r}"
        self._value = value
        self.field = value.field(name)
        self._read: Callable[[Any], pa.Array] = {
            Form.PANDAS: self._of_series,
            Form.NUMPY: self._of_ndarray,
        }.get(form, self._of_arrow)

    def of_values(self, values: Sequence[Any]) -> pa.Array:
        """Convert plain values of the author to the column; raise UserError if one does not fit."""
        try:
            column = self._column(values)
        except Exception as error:
            # Catch everything, because reading a value may run the author's code, such as a property.
            place = _place_of_unfit(values, self._column)
            raise wrong_result(
                f"{self._what} returned a value that does not fit {self._value.type}: {error}{place}"
            ) from error
        return self._without_nulls(column)

    def _column(self, values: Sequence[Any]) -> pa.Array:
        convert = self._value.to_arrow
        plain = values if convert is None else [convert(value) for value in values]
        return to_column(plain, self._value.type)

    def of_column(self, column: Any, rows: int) -> pa.Array:
        """Convert a column that the author's code returned for `rows` rows; raise UserError if it does not fit."""
        array = self._read(column)
        if len(array) != rows:
            raise wrong_result(f"{self._what} returned {len(array)} values for {rows} rows")
        return self.of_array(array)

    def of_array(self, array: pa.Array) -> pa.Array:
        """Convert an array to exactly the declared type; raise UserError if it does not fit."""
        wanted = self._value.type
        is_same = same_type(array.type, wanted)
        if not is_same and not _is_wider(array.type, wanted):
            raise wrong_result(f"{self._what} returned {array.type}, but has declared {wanted}")
        try:
            same = array if is_same else self._cast(array)
            return retyped(self._without_nulls(same), wanted)
        except (TypeError, pa.ArrowException) as error:
            place = _place_of_unfit(array, self._cast)
            raise wrong_result(
                f"{self._what} returned {array.type}, which does not fit {wanted}: {error}{place}"
            ) from error

    def _cast(self, array: pa.Array) -> pa.Array:
        check_narrowing(array, self._value.type)
        # A safe cast raises if a value would change.
        return array.cast(self._value.type)

    def _without_nulls(self, array: pa.Array) -> pa.Array:
        where = forbidden_null(array, self.field)
        if where:
            place = (
                f" ({where})" if where != self.field.name else _place(array.is_null().index(True).as_py(), len(array))
            )
            raise wrong_result(f"{self._what} returned a null, which its hint does not allow{place}")
        return array

    def _of_arrow(self, column: Any) -> pa.Array:
        if isinstance(column, pa.ChunkedArray):
            return column.combine_chunks()
        if not isinstance(column, pa.Array):
            raise wrong_result(f"{self._what} must return a pyarrow.Array, not {type(column).__name__}")
        return column

    def _of_series(self, column: Any) -> pa.Array:
        import pandas as pd

        if not isinstance(column, pd.Series):
            raise wrong_result(f"{self._what} must return a pandas.Series, not {type(column).__name__}")
        return self._of_numpy_values(column)

    def _of_ndarray(self, column: Any) -> pa.Array:
        import numpy as np

        if not isinstance(column, np.ndarray) or column.ndim != 1:
            raise wrong_result(f"{self._what} must return a numpy.ndarray of one dimension, not {_shape(column)}")
        return self._of_numpy_values(column)

    def _of_numpy_values(self, values: Any) -> pa.Array:
        """Convert a Series or ndarray; in a nullable column NaN becomes null, because NumPy has no other null."""
        if values.dtype == object:
            # Check each object's type first: pyarrow would silently convert some objects of other types.
            return to_column_of_objects(values, self._value, self._what)
        try:
            array = pa.array(values, from_pandas=self._value.nullable)
        except Exception as error:
            # pyarrow asks values of a pandas extension type to convert themselves, which may raise anything.
            raise wrong_result(f"{self._what} returned values of {values.dtype}, which Arrow does not have") from error
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        wanted = self._value.type
        if kinds.is_timestamp(array.type) and kinds.is_timestamp(wanted) and array.type.tz is None and wanted.tz:
            # NumPy has no time zones: its times are UTC, both in arguments and in results.
            array = array.cast(pa.timestamp(array.type.unit, wanted.tz))
        return array


def to_column_of_objects(values: Any, value: Hinted, what: str) -> pa.Array:
    """Convert an array of Python objects to a column; raise UserError if a value does not fit."""

    def column(listed: list[Any]) -> pa.Array:
        return nan_as_null(to_column(_with_nulls(listed) if value.nullable else listed, value.type))

    listed: list[Any] = []
    try:
        listed = values.tolist()
        return column(listed)
    except Exception as error:
        # Catch everything, because comparing values may run the author's code.
        place = _place_of_unfit(listed, column)
        raise wrong_result(f"{what} returned a value that does not fit {value.type}: {error}{place}") from error


def _place_of_unfit(values: Any, convert: Callable[[Any], object]) -> str:
    """Return the row and value of the first value that cannot be converted; empty if no such value is found."""

    def fails(rows: int) -> bool:
        try:
            convert(values[:rows])
        except Exception:
            return True
        return False

    if not fails(len(values)):
        return ""
    most_good, fewest_bad = 0, len(values)
    while fewest_bad - most_good > 1:
        middle = (most_good + fewest_bad) // 2
        most_good, fewest_bad = (most_good, middle) if fails(middle) else (middle, fewest_bad)
    return _place(most_good, len(values), _shown(values[most_good])) if fewest_bad else ""


def _place(row: int, rows: int, value: str = "") -> str:
    """Format a row number, counted from 0, and a value for an error; omit the number in a batch of one row."""
    words = [f"row {row} of the batch"] if rows > 1 else []
    words += [f"value {value}"] if value else []
    return f" ({', '.join(words)})" if words else ""


def _shown(value: Any) -> str:
    try:
        return _VALUES.repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    except Exception:
        # Catch everything, because `repr` may be the author's code.
        return f"of type {type(value).__name__}"


def _with_nulls(values: list[Any]) -> list[Any]:
    """Replace missing values of NumPy and pandas by None; return `values` itself if its classes have none."""
    classes = set(map(type, values))
    if classes <= _NEVER_MISSING:
        return values
    if classes <= _NEVER_MISSING | {float}:
        # Only NaN differs from itself. This comparison takes an eighth of the time of the general check.
        return [None if each != each else each for each in values]
    return [None if _is_missing(each) else each for each in values]


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing to NumPy and pandas: NaN or NaT, which differ from themselves, or NA."""
    if hasattr(value, "__len__"):
        # A container is not missing, and comparing an array returns an array.
        return False
    differs = value != value
    # Comparing pandas' NA returns NA instead of a bool.
    return type(differs).__name__ == "NAType" or bool(differs)


def _is_wider(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether results of type `kind` may be cast to the wanted type, provided that no value changes."""
    if kinds.is_null(kind):
        return True
    if kinds.is_dictionary(kind):
        return same_type(kind.value_type, wanted)
    if is_list(kind) and is_list(wanted):
        return same_type(kind.value_type, wanted.value_type) or _is_wider(kind.value_type, wanted.value_type)
    if kinds.is_timestamp(kind) and kinds.is_timestamp(wanted):
        return bool((kind.tz is None) == (wanted.tz is None))
    families = (kinds.is_integer, kinds.is_decimal, kinds.is_duration, kinds.is_time)
    if any(family(kind) and family(wanted) for family in families):
        return True
    return bool(kinds.is_floating(wanted) and (kinds.is_floating(kind) or kinds.is_integer(kind)))


def _shape(column: Any) -> str:
    dimensions = getattr(column, "ndim", None)
    return type(column).__name__ if dimensions is None else f"{type(column).__name__} of {dimensions} dimensions"
