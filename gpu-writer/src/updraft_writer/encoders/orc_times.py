# SPDX-License-Identifier: Apache-2.0
"""Dates and times as Spark stores them in ORC: the calendar of Spark 2, the wall clock of one time zone."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import EncodeError
from updraft_writer.encoders.calendars import PER_SECOND, hybrid_dates, hybrid_wall_clocks
from updraft_writer.encoders.leaves import leaf_types, with_leaf_fields, with_leaves
from updraft_writer.encoders.timestamps import check_time_zone, is_instant, is_wall_clock

# 2038-01-01: Arrow's time zones end with 2037.
_FIRST_SECOND_WITHOUT_RULES = 2_145_916_800
# What Spark reads the type of an integer column from.
_CATALYST_TYPE = "spark.sql.catalyst.type"


@dataclass(frozen=True, slots=True)
class OrcTimes:
    """How the dates and times of one file are stored."""

    time_zone: str

    @classmethod
    def in_zone(cls, name: str) -> "OrcTimes":
        """Those of a time zone, UTC where none is named; raises WriteOptionError."""
        check_time_zone(name or "UTC")
        return cls(name or "UTC")

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema as the library gets it; raises WriteOptionError."""
        return pa.schema([with_leaf_fields(field, _stored_field) for field in schema])

    def stored_table(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """The table in the schema that is stored; raises EncodeError."""
        columns = [
            pa.chunked_array([with_leaves(chunk, field.type, self._stored_leaf) for chunk in column.chunks], field.type)
            if column.type != field.type or any(map(pa.types.is_date32, leaf_types(column.type)))
            else column
            for column, field in zip(table.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _stored_leaf(self, leaf: pa.Array, stored: pa.DataType) -> pa.Array:
        if pa.types.is_date32(leaf.type):
            return hybrid_dates(leaf)
        if is_instant(leaf.type):
            return hybrid_wall_clocks(self._wall_clock(leaf))
        if is_wall_clock(leaf.type):
            return leaf.cast(pa.timestamp("us")).cast(stored)
        return leaf

    def _check_range(self, units: pa.Array, per_second: int) -> None:
        """The library loses fractions of seconds before 1970; its zones are Java's from 1970 to 2037."""
        old = pc.filter(units, pc.less(units, 0))
        if self.time_zone == "UTC":
            right = pc.equal(pc.multiply(pc.divide(old, per_second), per_second), old)
        else:
            right = pc.and_(pc.greater_equal(units, 0), pc.less(units, _FIRST_SECOND_WITHOUT_RULES * per_second))
        if not pc.all(right, min_count=0).as_py():
            raise EncodeError(
                "a timestamp before 1970 with a fraction of a second, or one before 1970 or after 2037 in another time "
                "zone than UTC, cannot be encoded as ORC here so that Java reads it rightly: use Spark's own format"
            )

    def _wall_clock(self, instants: pa.Array) -> pa.Array:
        unit = instants.type.unit
        self._check_range(instants.cast(pa.int64()), PER_SECOND[unit])
        shown = pc.local_timestamp(instants.cast(pa.timestamp(unit, self.time_zone)))
        try:
            pc.assume_timezone(shown, self.time_zone)
        except pa.ArrowException as error:
            raise EncodeError(
                f"an ORC timestamp is a time of day, and clocks of {self.time_zone} show this one twice: {error}; "
                "use Spark's own format, or run Spark in a time zone that never sets its clocks back, such as UTC"
            ) from error
        return shown


def _stored_field(field: pa.Field) -> pa.Field:
    if is_instant(field.type):
        return field.with_type(pa.timestamp(field.type.unit))
    if is_wall_clock(field.type):
        return field.with_type(pa.int64()).with_metadata({_CATALYST_TYPE: "timestamp_ntz"})
    return field
