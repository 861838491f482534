# SPDX-License-Identifier: Apache-2.0
"""Fast conversion between Arrow and pandas for columns of plain numbers.

PySpark checks every column of every batch for categories, time zones, nulls and names, and copies columns that it
selects by name. For a small group, that takes longer than most functions. A column whose numbers have exactly the
declared width needs none of this. `install` puts a fast path with the same results in front of PySpark's own
conversion, which still handles everything else.
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


def install(conversion: Any) -> None:
    """Install the fast path in PySpark's module `pyspark.sql.conversion`."""
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
    """Return the columns as Arrow, with NaN as null, or None unless all have plain numbers of their declared types."""
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
    """Return the frame's columns if they have exactly these names, without duplicates; empty otherwise."""
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
    """Return the array as pandas, or None unless it has plain numbers without nulls."""
    number = _NUMBERS.get(type(spark_type))
    if number is None or arr.type != number.arrow or arr.null_count or ser_name is None or prefer_int_ext_dtype:
        return None
    numbers = arr.to_numpy(zero_copy_only=False)
    return pd.Series(numbers if numbers.flags.writeable else numbers.copy(), name=ser_name)
