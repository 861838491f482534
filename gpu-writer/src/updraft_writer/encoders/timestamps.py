# SPDX-License-Identifier: Apache-2.0
"""Conversion of dates and times to the form that Spark stores in Parquet: calendar, precision and type.

Spark's calendar is always Gregorian. Spark 2 and ORC use the hybrid calendar, which is Julian before 1582. A date keeps
its year, month and day in the other calendar, so its number of days since 1970 changes. The dates from 1582-10-05 to
1582-10-14, which do not exist in the hybrid calendar, become 1582-10-15.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import ParquetOptions, Rebase, TimestampType
from updraft_writer.encoders.leaves import (
    has_required_fields,
    leaf_arrays,
    leaf_types,
    schema_leaves,
    table_with_leaves,
    with_leaf_fields,
)

# 1582-10-15, the first day that has the same date in both calendars.
FIRST_GREGORIAN_DAY = -141_427
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_SECONDS_PER_DAY = 86_400
_DAYS_OF_400_YEARS = 146_097
_DAYS_FROM_MARCH_OF_YEAR_0 = 719_468
# Arrow's division rounds towards zero. Shifting dates by this many times 400 years makes every date32 non-negative.
_SHIFTS = 15_000
# 1900-01-01T00:00:00Z. Before this time, Java's Julian and Gregorian calendars use different offsets in some zones.
_FIRST_SAFE_SECOND = -2_208_988_800
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00")

# The footer keys that Spark's readers use.
_LEGACY_DATES_KEY = "org.apache.spark.legacyDateTime"
_LEGACY_INT96_KEY = "org.apache.spark.legacyINT96"
_TIME_ZONE_KEY = "org.apache.spark.timeZone"


def is_instant(data_type: pa.DataType) -> bool:
    """Return whether a type is Spark's TIMESTAMP: a point in time, with a zone in Arrow."""
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def is_wall_clock(data_type: pa.DataType) -> bool:
    """Return whether a type is Spark's TIMESTAMP_NTZ, which has no zone in Arrow."""
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is None


@dataclass(frozen=True, slots=True)
class ParquetTimes:
    """Rules for storing the dates and times of one file."""

    timestamps: TimestampType
    rebase: Rebase
    int96_rebase: Rebase
    time_zone: str
    # Whether the library can mark a column's timestamps as having no zone.
    names_wall_clocks: bool = True

    @classmethod
    def asked_for(cls, options: ParquetOptions) -> "ParquetTimes":
        """Return the rules that the options ask for; raises WriteOptionError."""
        modes = (options.rebase, options.int96_rebase)
        if options.timestamps not in TimestampType.values() or not set(modes) <= set(Rebase.values()):
            raise WriteOptionError("this writer does not know the timestamp type or a rebase mode")
        if Rebase.REBASE_LEGACY in modes and not options.time_zone:
            raise WriteOptionError("the rebase mode LEGACY needs the session's time zone")
        return cls(options.timestamps, *modes, options.time_zone)

    @property
    def uses_int96(self) -> bool:
        """Whether points in time are stored as INT96."""
        return self.timestamps in (TimestampType.TIMESTAMP_TYPE_UNSPECIFIED, TimestampType.TIMESTAMP_TYPE_INT96)

    @property
    def rebases_dates(self) -> bool:
        """Whether dates, and timestamps other than INT96, are in the hybrid calendar."""
        return self.rebase == Rebase.REBASE_LEGACY

    @property
    def footer(self) -> dict[str, str]:
        """Footer keys that tell readers the file's calendar."""
        keys: dict[str, str] = {}
        if self.rebases_dates:
            keys |= {_LEGACY_DATES_KEY: "", _TIME_ZONE_KEY: self.time_zone}
        if self.int96_rebase == Rebase.REBASE_LEGACY:
            keys |= {_LEGACY_INT96_KEY: "", _TIME_ZONE_KEY: self.time_zone}
        return keys

    def has_int96(self, schema: pa.Schema) -> bool:
        """Return whether a file of this schema contains an INT96 column."""
        return self.uses_int96 and any(map(is_instant, schema_leaves(schema)))

    def unnamed_wall_clocks(self, schema: pa.Schema) -> list[int]:
        """Return the numbers of the wall-clock leaves to store as integers, because the library cannot mark them.

        pyarrow stores either all timestamps of a file as INT96 or none; Spark stores only points in time as INT96.
        """
        wall_clocks = [index for index, leaf in enumerate(schema_leaves(schema)) if is_wall_clock(leaf)]
        return wall_clocks if self.has_int96(schema) or not self.names_wall_clocks else []

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema for the library; raises WriteOptionError."""
        as_integers = bool(self.unnamed_wall_clocks(schema))

        def stored(field: pa.Field) -> pa.Field:
            if is_instant(field.type) and self._rebase_of(field.type) == Rebase.REBASE_LEGACY:
                self._check_rebased_zone()
            if is_instant(field.type) and self.timestamps == TimestampType.TIMESTAMP_TYPE_MILLIS:
                return field.with_type(pa.timestamp("ms", field.type.tz))
            if is_wall_clock(field.type) and as_integers:
                return field.with_type(pa.int64())
            # Spark sends times of the day in nanoseconds and stores microseconds.
            return field.with_type(pa.time64("us")) if pa.types.is_time64(field.type) else field

        return pa.schema([with_leaf_fields(field, stored) for field in schema], schema.metadata)

    def stored_table(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """Convert a table to the stored schema; raises EncodeError for values whose calendar date is ambiguous."""
        for column, name in zip(table.columns, table.column_names, strict=True):
            self._check_calendar(column, name)
        return table_with_leaves(table, schema, self._stored_leaf, changes=self._changes)

    def _rebase_of(self, leaf: pa.DataType) -> Rebase:
        """Return the rebase mode of a leaf; types that do not depend on a calendar are stored unchanged."""
        if is_instant(leaf):
            return self.int96_rebase if self.uses_int96 else self.rebase
        return self.rebase if pa.types.is_date32(leaf) else Rebase.REBASE_CORRECTED

    def _check_rebased_zone(self) -> None:
        """Raise WriteOptionError for zones other than UTC: rebasing would need Java's own zone offsets before 1900."""
        if self.time_zone not in _UTC:
            raise WriteOptionError(
                f"this writer rebases timestamps (LEGACY) only in UTC, not in {self.time_zone}: set "
                "spark.sql.session.timeZone to UTC, or let the client rebase them and send the footer's keys itself"
            )

    def _changes(self, data_type: pa.DataType) -> bool:
        is_rebased = any(self._rebase_of(leaf) == Rebase.REBASE_LEGACY for leaf in leaf_types(data_type))
        return is_rebased or has_required_fields(data_type)

    def _stored_leaf(self, leaf: pa.Array, stored: pa.DataType) -> pa.Array:
        if self._rebase_of(leaf.type) == Rebase.REBASE_LEGACY:
            leaf = _hybrid_instants(leaf) if is_instant(leaf.type) else hybrid_dates(leaf)
        if leaf.type == stored:
            return leaf
        if is_instant(stored):
            # Round down to the millisecond, because the cast would round towards zero. Use UTC, because no zone may
            # change the result.
            utc = leaf.cast(pa.timestamp(leaf.type.unit, "UTC"))
            return pc.floor_temporal(utc, unit="millisecond").cast(stored)
        if pa.types.is_int64(stored):
            return leaf.cast(pa.timestamp("us")).cast(stored)
        return leaf.cast(stored)

    def _check_calendar(self, column: pa.ChunkedArray, name: str) -> None:
        if all(self._rebase_of(leaf) != Rebase.REBASE_EXCEPTION for leaf in leaf_types(column.type)):
            return
        for chunk in column.chunks:
            for leaf in leaf_arrays(chunk):
                if self._rebase_of(leaf.type) == Rebase.REBASE_EXCEPTION:
                    _check_leaf(leaf, name)


def _hybrid_instants(instants: pa.Array) -> pa.Array:
    wall_clocks = instants.cast(pa.timestamp(instants.type.unit, "UTC")).cast(pa.timestamp(instants.type.unit))
    return hybrid_wall_clocks(wall_clocks).cast(pa.timestamp(instants.type.unit, "UTC")).cast(instants.type)


def _check_leaf(leaf: pa.Array, name: str) -> None:
    if is_instant(leaf.type):
        integers, first = leaf.cast(pa.int64()), _FIRST_SAFE_SECOND * PER_SECOND[leaf.type.unit]
    else:
        integers, first = leaf.cast(pa.int32()), FIRST_GREGORIAN_DAY
    least = pc.min(integers).as_py()
    if least is not None and least < first:
        raise EncodeError(
            f"column {name!r} has a date before 1582-10-15 or a timestamp before 1900-01-01T00:00:00Z, which the "
            "calendars of Spark 2 and Spark 3 read differently: set spark.sql.parquet.datetimeRebaseModeInWrite (for "
            "INT96 int96RebaseModeInWrite) to CORRECTED to write it unchanged, or to LEGACY for Spark 2"
        )


def hybrid_dates(dates: pa.Array) -> pa.Array:
    """Convert dates (date32) to the hybrid calendar."""
    days = dates.cast(pa.int32()).cast(pa.int64())
    if not _any_before(days, FIRST_GREGORIAN_DAY):
        return dates
    return pc.add(days, _moved_days(days)).cast(pa.int32()).cast(pa.date32())


def hybrid_wall_clocks(times: pa.Array) -> pa.Array:
    """Convert the dates of times without a zone to the hybrid calendar."""
    units_per_day = _SECONDS_PER_DAY * PER_SECOND[times.type.unit]
    units = times.cast(pa.int64())
    if not _any_before(units, FIRST_GREGORIAN_DAY * units_per_day):
        return times
    days = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return pc.add_checked(units, pc.multiply(_moved_days(days), units_per_day)).cast(times.type)


def _any_before(integers: pa.Array, first: int) -> bool:
    least = pc.min(integers).as_py()
    return least is not None and least < first


def _moved_days(days: pa.Array) -> pa.Array:
    """Return how many days the Julian calendar is behind: three of four centuries have one more leap day there."""
    shifted = pc.add(days, _DAYS_FROM_MARCH_OF_YEAR_0 + _SHIFTS * _DAYS_OF_400_YEARS)
    centuries = pc.divide(pc.add(pc.multiply(shifted, 4), 3), _DAYS_OF_400_YEARS)
    more_leap_days = pc.subtract(pc.subtract(centuries, pc.divide(centuries, 4)), 3 * _SHIFTS + 2)
    moved = pc.min_element_wise(more_leap_days, pc.subtract(FIRST_GREGORIAN_DAY, days), skip_nulls=False)
    return pc.if_else(pc.less(days, FIRST_GREGORIAN_DAY), moved, 0)
