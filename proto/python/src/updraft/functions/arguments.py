# SPDX-License-Identifier: Apache-2.0
"""Argument columns of a function: checked before its code runs, and converted to the form that the code takes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.arrow_types import forbidden_null, retyped, same_type
from updraft.functions.failures import wrong_arguments
from updraft.functions.hints import Form, Hinted
from updraft.functions.signature import Argument, Signature
from updraft.functions.values import to_column, to_values

Reader: TypeAlias = Callable[[pa.Array], Any]


class Arguments:
    """Arguments of a function. The last arguments may have defaults.

    Callers pass columns by position, under any names.
    """

    def __init__(self, function: str, arguments: Sequence[Argument]) -> None:
        self._function = function
        self._arguments = arguments
        self.schema = pa.schema([argument.value.field(argument.name) for argument in arguments])
        self._required = len(arguments)
        while self._required and arguments[self._required - 1].is_optional:
            self._required -= 1
        self._defaults = [_scalar(argument) for argument in arguments[self._required :]]

    @property
    def defaults(self) -> Sequence[pa.Scalar]:
        """Defaults of the last arguments, which a caller may leave out."""
        return self._defaults

    @property
    def default_row(self) -> pa.RecordBatch:
        """Defaults as a batch of one row."""
        columns = [pa.repeat(default, 1) for default in self._defaults]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(self.schema)[self._required :]))

    def check(self, schema: pa.Schema) -> None:
        """Raise ProtocolError unless columns of these types can be the arguments."""
        if not self._required <= len(schema) <= len(self._arguments):
            raise wrong_arguments(
                f"function {self._function!r} takes {self._count()} ({self}), not {len(schema)}"
                f" ({', '.join(str(field.type) for field in schema)})"
            )
        for argument, column in zip(self.schema, schema, strict=False):
            if not same_type(column.type, argument.type):
                raise wrong_arguments(
                    f"argument {argument.name!r} of function {self._function!r} is {argument.type}, not {column.type}:"
                    " cast it before the call"
                )

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in exactly the types of `schema`, with defaults filled in; raise ProtocolError."""
        if not batch.schema.equals(self.schema):
            self.check(batch.schema)
        columns = [self._checked(*pair) for pair in zip(batch.columns, self.schema, strict=False)]
        missing = len(self._arguments) - len(columns)
        columns += [pa.repeat(default, batch.num_rows) for default in self._defaults[len(self._defaults) - missing :]]
        if not columns:
            # Without columns, only the batch itself knows its number of rows.
            return batch
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _checked(self, column: pa.Array, argument: pa.Field) -> pa.Array:
        where = forbidden_null(column, argument)
        if where:
            raise wrong_arguments(
                f"argument {argument.name!r} of function {self._function!r} has a null, which its hint does not allow"
                + (f" ({where})" if where != argument.name else "")
            )
        try:
            return retyped(column, argument.type)
        except pa.ArrowException as error:
            raise wrong_arguments(
                f"argument {argument.name!r} of function {self._function!r} is {column.type}, which cannot be "
                f"converted to {argument.type}: {error}"
            ) from error

    def _count(self) -> str:
        most = len(self._arguments)
        number = str(most) if self._required == most else f"{self._required} to {most}"
        return f"{number} column" if number == "1" else f"{number} columns"

    def __str__(self) -> str:
        return ", ".join(
            f"{argument.name}: {argument.value.type}" + (f" = {argument.default!r}" if argument.is_optional else "")
            for argument in self._arguments
        )


def _scalar(argument: Argument) -> pa.Scalar:
    convert = argument.value.to_arrow
    value = argument.default if convert is None else convert(argument.default)
    return to_column([value], argument.value.type)[0]


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
        # NumPy has no null for these types, so pandas would convert such a column to floats, which are inexact for
        # large numbers.
        return lambda column: column.to_pandas(types_mapper=_nullable_type)
    # With this option, integers inside lists, maps and structs stay exact too.
    return lambda column: column.to_pandas(integer_object_nulls=True)


def _nullable_type(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.BooleanDtype() if kinds.is_boolean(kind) else pd.array([], dtype=_name_of(kind)).dtype


def _name_of(kind: pa.DataType) -> str:
    """Return the name of pandas' nullable type, such as Int64 or UInt8."""
    text = str(kind)
    return text.replace("uint", "UInt") if text.startswith("uint") else text.replace("int", "Int")
