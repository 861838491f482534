# SPDX-License-Identifier: Apache-2.0
"""A short way between Arrow and pandas for columns of plain numbers.

PySpark looks for categories, time zones, nulls and names in every column of every batch, and selects columns by name
with a copy: for a small group that takes longer than most functions. A column whose numbers have exactly the declared
width needs nothing of it. `install` puts the short way before PySpark's own, which gives the same and keeps the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import types


class _Number(NamedTuple):
    """A type of number as Arrow and as pandas have it."""

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


def install(conversion: Any) -> None:
    """Put the short way into PySpark's module `pyspark.sql.conversion`."""
    _precede(conversion.PandasToArrowConversion, "convert", batch_of_numbers)
    _precede(conversion.ArrowArrayToPandasConversion, "convert_numpy", series_of_numbers)


def _precede(converter: Any, name: str, short: Callable[..., Any]) -> None:
    stock = getattr(converter, name).__func__

    def convert(cls: type[Any], /, *arguments: Any, **options: Any) -> Any:
        converted = short(*arguments, **options)
        return stock(cls, *arguments, **options) if converted is None else converted

    setattr(converter, name, classmethod(convert))


def batch_of_numbers(
    data: pd.DataFrame | Sequence[pd.Series], schema: types.StructType, **_options: Any
) -> pa.RecordBatch | None:
    """The columns as Arrow, NaN as null; None where one is anything else than plain numbers of its declared type."""
    columns = _columns(data, schema.names) if isinstance(data, pd.DataFrame) else data
    if not columns or len(columns) != len(schema.fields):
        return None
    arrays = []
    for column, field in zip(columns, schema.fields, strict=True):
        number = _NUMBERS.get(type(field.dataType))
        if number is None or type(column) is not pd.Series or column.dtype != number.dtype:
            return None
        arrays.append(pa.array(column.to_numpy(), number.arrow, from_pandas=True))
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def _columns(frame: pd.DataFrame, names: list[str]) -> list[pd.Series]:
    """The frame's columns where they have just these names; else none."""
    if list(frame.columns) != names or len(set(names)) != len(names):
        return []
    return [column for _, column in frame.items()]


def series_of_numbers(
    arr: pa.Array | pa.ChunkedArray,
    spark_type: types.DataType,
    *,
    ser_name: str | None = None,
    prefer_int_ext_dtype: bool = False,
    **_options: Any,
) -> pd.Series | None:
    """The array as pandas has it; None where it is anything else than plain numbers without nulls."""
    number = _NUMBERS.get(type(spark_type))
    if number is None or arr.type != number.arrow or arr.null_count or ser_name is None or prefer_int_ext_dtype:
        return None
    numbers = arr.to_numpy(zero_copy_only=False)
    return pd.Series(numbers if numbers.flags.writeable else numbers.copy(), name=ser_name)
