# SPDX-License-Identifier: Apache-2.0
"""Columns of a batch in the form that the author's code takes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.forms import Form
from updraft.functions.hints import Hinted
from updraft.functions.signature import Signature
from updraft.functions.values import to_values

Reader: TypeAlias = Callable[[pa.Array], Any]


class Columns:
    """Reader of checked batches for a function."""

    def __init__(self, signature: Signature) -> None:
        self._readers = [_reader(signature.form, argument.value) for argument in signature.arguments]

    def of(self, batch: pa.RecordBatch) -> Sequence[Any]:
        """Return one column for each argument: a list of values, an Array, a Series or an ndarray."""
        return [read(column) for read, column in zip(self._readers, batch.columns, strict=False)]


def _reader(form: Form, value: Hinted) -> Reader:
    match form:
        case Form.ROWS:
            return lambda column: to_values(column, value.from_arrow)
        case Form.PANDAS:
            return _series_reader(value)
        case Form.NUMPY:
            return lambda column: column.to_numpy(zero_copy_only=False)
    return lambda column: column


def _series_reader(value: Hinted) -> Reader:
    exact = kinds.is_integer(value.type) or kinds.is_boolean(value.type)
    if value.nullable and exact:
        # NumPy has no null for these types: pandas would make them floats, which are inexact for large numbers.
        return lambda column: column.to_pandas(types_mapper=_nullable_type)
    # This keeps integers exact inside lists, maps and structs too.
    return lambda column: column.to_pandas(integer_object_nulls=True)


def _nullable_type(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.BooleanDtype() if kinds.is_boolean(kind) else pd.array([], dtype=_name_of(kind)).dtype


def _name_of(kind: pa.DataType) -> str:
    """Return the name of pandas' nullable type, such as Int64 or UInt8."""
    text = str(kind)
    return text.replace("uint", "UInt") if text.startswith("uint") else text.replace("int", "Int")
