# SPDX-License-Identifier: Apache-2.0
"""Columns of engines that call by plain Flight, in the types that a function declares where the values are the same.

An engine has one type for several of Arrow's: Databend sends decimals in the narrowest width and instants without a
zone, RisingWave instants in the zone +00:00. What else differs is for the function's own check to refuse.
"""

import pyarrow as pa
from pyarrow import types as kinds

_UTC = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})


def as_declared(batch: pa.RecordBatch, arguments: pa.Schema, *, zoneless_is_utc: bool) -> pa.RecordBatch:
    """The batch with each column that is an argument's by another name in the argument's own type."""
    declared = [
        wanted if _has_same_values(given, wanted, zoneless_is_utc=zoneless_is_utc) else given
        for given, wanted in zip(batch.schema.types, arguments.types, strict=False)
    ]
    if declared == batch.schema.types[: len(declared)]:
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, declared, strict=False)]
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, declared, strict=False)]
    rest = len(declared)
    return pa.record_batch([*columns, *batch.columns[rest:]], schema=pa.schema([*fields, *list(batch.schema)[rest:]]))


def _has_same_values(given: pa.DataType, wanted: pa.DataType, *, zoneless_is_utc: bool) -> bool:
    if kinds.is_decimal(given) and kinds.is_decimal(wanted):
        return (given.precision, given.scale) == (wanted.precision, wanted.scale)
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        is_utc = given.tz in _UTC or (given.tz is None and zoneless_is_utc)
        return given.unit == wanted.unit and is_utc and wanted.tz in _UTC
    return False
