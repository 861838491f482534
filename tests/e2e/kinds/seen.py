# SPDX-License-Identifier: Apache-2.0
"""Functions of the matrix: they return their values unchanged, and describe them as text."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


def same(values: Any) -> Any:
    """Return the values unchanged."""
    return values


def text(value: Any) -> str:
    """Return the class and value of a Python object."""
    return f"{type(value).__name__} {value!r}"


def texts_of_arrow(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the Arrow type, class and value of each element."""
    return pa.array([f"{values.type} {text(value)}" for value in values.to_pylist()], pa.string())


def texts_of_pandas(values: pd.Series | pd.DataFrame) -> pd.Series:
    """Return the dtype, class and value of each element; a struct is a DataFrame."""
    if isinstance(values, pd.DataFrame):
        columns = [texts_of_pandas(values[name]) for name in values.columns]
        return pd.Series([repr((list(values.columns), row)) for row in zip(*columns, strict=True)], dtype=object)
    return pd.Series([f"{values.dtype} {text(value)}" for value in values], dtype=object)


def rows_in_pandas(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return a frame of `id` and type cases as `id` and both results of each, called `names`."""
    columns = [frame.iloc[:, 0].reset_index(drop=True)]
    for index in range(1, len(frame.columns)):
        values = frame.iloc[:, index].reset_index(drop=True)
        columns += [values, texts_of_pandas(values)]
    return pd.concat(columns, axis=1, keys=names)


def rows_in_arrow(rows: pa.RecordBatch | pa.Table, names: list[str]) -> Any:
    """Return a batch or table of `id` and type cases in the same form."""
    columns = [rows.column(0)]
    for values in rows.columns[1:]:
        columns += [values, texts_of_arrow(values)]
    return type(rows).from_arrays(columns, names)
