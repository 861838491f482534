# SPDX-License-Identifier: Apache-2.0
"""Columns of engines that call by plain Flight, in the types that a function declares where the values are the same.

An engine has one type for several of Arrow's: Databend sends decimals in the narrowest width and instants without a
zone, RisingWave instants in the zone +00:00. What else differs is for the function's own check to refuse.
"""

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.failures import wrong_arguments

_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def as_declared(given: pa.Schema, arguments: pa.Schema, *, zoneless_is_utc: bool) -> pa.Schema:
    """The schema with each column that is an argument's by another name in the argument's own type."""
    fields = [
        field.with_type(wanted.type)
        if _has_same_values(field.type, wanted.type, zoneless_is_utc=zoneless_is_utc)
        else field
        for field, wanted in zip(given, arguments, strict=False)
    ]
    return pa.schema([*fields, *list(given)[len(fields) :]])


def retyped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of the given schema in what `as_declared` made of that; raises ProtocolError."""
    if batch.schema.types == schema.types:
        return batch
    try:
        columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
    except pa.ArrowException as error:
        raise wrong_arguments(f"a value does not have its column's type: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_same_values(given: pa.DataType, wanted: pa.DataType, *, zoneless_is_utc: bool) -> bool:
    if kinds.is_decimal(given) and kinds.is_decimal(wanted):
        return (given.precision, given.scale) == (wanted.precision, wanted.scale)
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        is_utc = given.tz in _UTC or (given.tz is None and zoneless_is_utc)
        return given.unit == wanted.unit and is_utc and wanted.tz in _UTC
    return False
