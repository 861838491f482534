# SPDX-License-Identifier: Apache-2.0
"""Dates and timestamps as Spark stores them: which calendar they may be from, and how fine they are."""

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import Rebase, TimestampType
from updraft_writer.encoders.leaves import leaf_arrays, leaf_types

# Spark's RebaseDateTime: the first day of the Gregorian calendar, and 1900-01-01T00:00:00Z, before which the zones of
# the old and the new calendar differ somewhere.
_FIRST_GREGORIAN_DAY = -141_427
_FIRST_SAFE_SECOND = -2_208_988_800
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_instant(data_type: pa.DataType) -> bool:
    """Whether a type is Spark's TIMESTAMP: a point in time, with a zone in Arrow."""
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def is_wall_clock(data_type: pa.DataType) -> bool:
    """Whether a type is Spark's TIMESTAMP_NTZ: no zone in Arrow."""
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is None


def uses_int96(schema: pa.Schema, wanted: TimestampType) -> bool:
    """Whether timestamps are stored as INT96; raises WriteOptionError for a schema that the encoder cannot serve.

    Spark keeps timestamps without a zone as INT64 beside INT96; the encoder has one answer for all columns of a file.
    """
    types = [leaf for field in schema for leaf in leaf_types(field.type)]
    if wanted not in (TimestampType.TIMESTAMP_TYPE_UNSPECIFIED, TimestampType.TIMESTAMP_TYPE_INT96):
        return False
    if not any(map(is_instant, types)):
        return False
    if any(map(is_wall_clock, types)):
        raise WriteOptionError(
            "INT96 timestamps beside timestamps without a time zone cannot be written in one file: "
            "set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS"
        )
    return True


def stored_schema(schema: pa.Schema, wanted: TimestampType) -> pa.Schema:
    """The schema with the units that are stored; raises WriteOptionError for nested milliseconds."""
    if wanted != TimestampType.TIMESTAMP_TYPE_MILLIS:
        return schema
    fields = []
    for field in schema:
        if is_instant(field.type):
            fields.append(field.with_type(pa.timestamp("ms", field.type.tz)))
        elif any(map(is_instant, leaf_types(field.type))):
            raise WriteOptionError(f"column {field.name!r}: timestamps in milliseconds inside of nested columns")
        else:
            fields.append(field)
    return pa.schema(fields, schema.metadata)


def stored_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the schema that is stored: cut to the unit before, never rounded towards zero."""
    columns = [
        column if column.type == field.type else pc.floor_temporal(column, unit="millisecond").cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def check_calendar(table: pa.Table, rebase: Rebase) -> None:
    """Raise EncodeError for values of which it is not said which calendar they are from."""
    if rebase == Rebase.REBASE_CORRECTED:
        return
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for leaf in leaf_arrays(chunk):
                _check_leaf(leaf, name)


def _check_leaf(leaf: pa.Array, name: str) -> None:
    if pa.types.is_date32(leaf.type):
        integers, first = leaf.cast(pa.int32()), _FIRST_GREGORIAN_DAY
    elif is_instant(leaf.type):
        integers, first = leaf.cast(pa.int64()), _FIRST_SAFE_SECOND * _PER_SECOND[leaf.type.unit]
    else:
        return
    least = pc.min(integers).as_py()
    if least is not None and least < first:
        raise EncodeError(
            f"column {name!r} has a date before 1582-10-15 or a timestamp before 1900-01-01T00:00:00Z, which the "
            "calendars of Spark 2 and Spark 3 read differently: set the rebase mode to CORRECTED to write it as it is"
        )
