# SPDX-License-Identifier: Apache-2.0
"""Fast conversion between Arrow and pandas for columns of plain numbers and texts.

PySpark checks every column of every batch for categories, time zones, nulls and names, and copies columns that it
selects by name. For a small group, that takes longer than most functions. A column whose numbers have exactly the
declared width, or whose values are Python strings, needs none of these steps. `install` puts a fast path with the same
results in front of PySpark's own conversion, which still handles everything else and raises all errors.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import types


class _Number(NamedTuple):
    """Type of number in Arrow and in pandas."""

    arrow: pa.DataType
    dtype: np.dtype[Any]


_NUMBERS = {
    types.ByteType: _Number(pa.int8(), np.dtype("int8")),
    types.ShortType: _Number(pa.int16(), np.dtype("int16")),
    types.IntegerType: _Number(pa.int32(), np.dtype("int32")),
    types.LongType: _Number(pa.int64(), np.dtype("int64")),
    types.FloatType: _Number(pa.float32(), np.dtype("float32")),
    types.DoubleType: _Number(pa.float64(), np.dtype("float64")),
}
_DTYPES = {number.arrow: number.dtype for number in _NUMBERS.values()}
_TEXT, _LARGE_TEXT = pa.string(), pa.large_string()

_SAMPLE_ROWS = 256
"""Number of rows at the start of a text column that decide whether equal texts become one Python string."""


def install(conversion: Any) -> None:
    """Install the fast path in PySpark's module `pyspark.sql.conversion`."""
    _precede_class_method(conversion.PandasToArrowConversion, "convert", plain_batch)
    _precede_class_method(conversion.ArrowArrayToPandasConversion, "convert_numpy", plain_series)
    # Each PySpark version calls `convert_legacy` for some types. The method ignores the requested column name.
    _precede_class_method(conversion.ArrowArrayToPandasConversion, "convert_legacy", plain_series_with_own_name)


def install_before_4_2(serializers: Any) -> None:
    """Install the fast path in PySpark's module `pyspark.sql.pandas.serializers`, which converts before Spark 4.2."""
    serializer = serializers.ArrowStreamPandasSerializer
    stock_array, stock_series = serializer._create_array, serializer.arrow_to_pandas

    def _create_array(
        self: Any, series: Any, arrow_type: Any, spark_type: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        array = _array(series, arrow_type) if _may_be_plain(spark_type) else None
        if array is not None:
            return array
        return stock_array(self, series, arrow_type, spark_type, *arguments, **options)

    def arrow_to_pandas(self: Any, column: Any, *arguments: Any, spark_type: Any = None, **options: Any) -> Any:
        series = _series(column, getattr(column, "_name", None)) if _may_be_plain(spark_type) else None
        if series is not None:
            return series
        if spark_type is not None:
            options["spark_type"] = spark_type
        return stock_series(self, column, *arguments, **options)

    serializer._create_array, serializer.arrow_to_pandas = _create_array, arrow_to_pandas


def _may_be_plain(spark_type: types.DataType | None) -> bool:
    """Return False for types whose values PySpark converts one by one, such as user-defined types of strings."""
    return spark_type is None or type(spark_type) in _NUMBERS or type(spark_type) is types.StringType


def _precede_class_method(converter: Any, name: str, short: Callable[..., Any]) -> None:
    stock = getattr(converter, name).__func__

    def convert(cls: type[Any], /, *arguments: Any, **options: Any) -> Any:
        converted = short(*arguments, **options)
        return stock(cls, *arguments, **options) if converted is None else converted

    setattr(converter, name, classmethod(convert))


def plain_batch(
    data: pd.DataFrame | Sequence[pd.Series],
    schema: types.StructType,
    *,
    prefers_large_types: bool = False,
    **_options: Any,
) -> pa.RecordBatch | None:
    """Return the columns as Arrow, with NaN as null, or None unless all have plain values of their declared types."""
    columns = _columns(data, schema.names) if isinstance(data, pd.DataFrame) else data
    if not columns or len(columns) != len(schema.fields):
        return None
    text = _LARGE_TEXT if prefers_large_types else _TEXT
    arrays = []
    for column, field in zip(columns, schema.fields, strict=True):
        array = _array(column, _arrow_type(field.dataType, text))
        if array is None:
            return None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def _columns(frame: pd.DataFrame, names: list[str]) -> list[pd.Series]:
    """Return the frame's columns if they have exactly these names, without duplicates; empty otherwise."""
    if list(frame.columns) != names or len(set(names)) != len(names):
        return []
    return [column for _, column in frame.items()]


def plain_series(
    arr: pa.Array | pa.ChunkedArray,
    spark_type: types.DataType,
    *,
    ser_name: str | None = None,
    prefer_int_ext_dtype: bool = False,
    **_options: Any,
) -> pd.Series | None:
    """Return the array as pandas, or None unless it contains texts, or plain numbers without nulls."""
    if ser_name is None or prefer_int_ext_dtype:
        return None
    return _series(arr, ser_name) if _is_plain(arr, spark_type) else None


def plain_series_with_own_name(
    arr: pa.Array | pa.ChunkedArray, spark_type: types.DataType, **_options: Any
) -> pd.Series | None:
    """Return the array as pandas, or None, like `plain_series`, but with the name that the column has in its batch."""
    return _series(arr, getattr(arr, "_name", None)) if _is_plain(arr, spark_type) else None


def _is_plain(arr: pa.Array | pa.ChunkedArray, spark_type: types.DataType) -> bool:
    return bool(arr.type == _arrow_type(spark_type, _LARGE_TEXT if arr.type == _LARGE_TEXT else _TEXT))


def _arrow_type(spark_type: types.DataType, text: pa.DataType) -> pa.DataType | None:
    number = _NUMBERS.get(type(spark_type))
    if number is not None:
        return number.arrow
    return text if type(spark_type) is types.StringType else None


def _array(column: Any, arrow_type: pa.DataType | None) -> pa.Array | None:
    if type(column) is not pd.Series:
        return None
    if arrow_type in (_TEXT, _LARGE_TEXT):
        if column.dtype != object:
            return None
        try:
            return pa.array(column.to_numpy(), arrow_type, from_pandas=True)
        except (pa.ArrowException, ValueError):
            return None
    if arrow_type is None or column.dtype != _DTYPES.get(arrow_type):
        return None
    return pa.array(column.to_numpy(), arrow_type, from_pandas=True)


def _series(array: pa.Array | pa.ChunkedArray, name: str | None) -> pd.Series | None:
    if array.type in (_TEXT, _LARGE_TEXT):
        sample = array.slice(0, _SAMPLE_ROWS)
        # Deduplicate texts only if most of them are equal. Otherwise a table of all texts costs more than it saves.
        series = array.to_pandas(deduplicate_objects=len(sample.unique()) * 2 < len(sample))
        series.name = name
        return series
    if array.type not in _DTYPES or array.null_count:
        return None
    numbers = array.to_numpy(zero_copy_only=False)
    return pd.Series(numbers if numbers.flags.writeable else numbers.copy(), name=name)
