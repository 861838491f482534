# SPDX-License-Identifier: Apache-2.0
"""Conversion of dates and times to the form that Spark stores in ORC.

Dates are stored in Spark 2's calendar. Times without a zone are stored as integers.

The writer does not use ORC's own timestamps. The library splits a timestamp before 1970 into seconds and nanoseconds
rounded towards zero, so both are negative. ORC's Java reader, and therefore Spark, fails on negative nanoseconds. No
other input makes the library store the pair that Java writes, so this module refuses schemas with such timestamps.
"""

import pyarrow as pa

from updraft.errors import WriteOptionError
from updraft_writer.encoders.leaves import leaf_types, table_with_leaves, with_leaf_fields
from updraft_writer.encoders.timestamps import hybrid_dates, is_instant, is_wall_clock

# The attribute from which Spark reads the type of an integer column.
_CATALYST_TYPE = "spark.sql.catalyst.type"


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema for the library; raises WriteOptionError if the library cannot store every value of a type."""
    for field in schema:
        for leaf in leaf_types(field.type):
            if reason := _why_not_stored(leaf):
                raise WriteOptionError(f"column {field.name!r} contains {leaf}: {reason}")
    return pa.schema([with_leaf_fields(field, _stored_field) for field in schema])


def stored_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the stored schema; raises EncodeError."""
    return table_with_leaves(table, schema, _stored_leaf, changes=_has_dates)


def _has_dates(data_type: pa.DataType) -> bool:
    return any(map(pa.types.is_date32, leaf_types(data_type)))


def _why_not_stored(leaf: pa.DataType) -> str | None:
    if is_instant(leaf):
        return (
            "the writer's ORC library stores fractions of a second before 1970 in a form that ORC's Java reader "
            "rejects; write Parquet, let Spark's own writer make the file, or cast to a timestamp without a time zone"
        )
    if pa.types.is_decimal(leaf) and leaf.scale < 0:
        return "the writer's ORC library ends the process on decimals of a negative scale; cast to a scale of 0"
    if pa.types.is_date64(leaf):
        return "the writer's ORC library would make timestamps of these dates; cast to date32"
    if is_wall_clock(leaf) and leaf.unit == "ns":
        return "Spark's TIMESTAMP_NTZ has microseconds; cast to timestamp[us]"
    return None


def _stored_leaf(leaf: pa.Array, stored: pa.DataType) -> pa.Array:
    if pa.types.is_date32(leaf.type):
        return hybrid_dates(leaf)
    if is_wall_clock(leaf.type):
        return leaf.cast(pa.timestamp("us")).cast(stored)
    return leaf


def _stored_field(field: pa.Field) -> pa.Field:
    if is_wall_clock(field.type):
        return field.with_type(pa.int64()).with_metadata({_CATALYST_TYPE: "timestamp_ntz"})
    return field
