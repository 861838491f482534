# SPDX-License-Identifier: Apache-2.0
"""Conversion of dates from Spark's calendar (always Gregorian) to that of Spark 2 and ORC (Julian before 1582).

A date keeps its year, month and day, so its number of days since 1970 changes. The dates from 1582-10-05 to 1582-10-14,
which do not exist in the other calendar, become 1582-10-15.
"""

import pyarrow as pa
import pyarrow.compute as pc

# 1582-10-15, the first day that has the same date in both calendars.
FIRST_GREGORIAN_DAY = -141_427
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_SECONDS_PER_DAY = 86_400
_DAYS_OF_400_YEARS = 146_097
_DAYS_FROM_MARCH_OF_YEAR_0 = 719_468
# Arrow's division rounds towards zero, so shift dates by this many times 400 years. Then no date32 is negative.
_SHIFTS = 15_000


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
    """Return the days by which the Julian calendar is behind: it has one more leap day in three of four centuries."""
    shifted = pc.add(days, _DAYS_FROM_MARCH_OF_YEAR_0 + _SHIFTS * _DAYS_OF_400_YEARS)
    centuries = pc.divide(pc.add(pc.multiply(shifted, 4), 3), _DAYS_OF_400_YEARS)
    more_leap_days = pc.subtract(pc.subtract(centuries, pc.divide(centuries, 4)), 3 * _SHIFTS + 2)
    moved = pc.min_element_wise(more_leap_days, pc.subtract(FIRST_GREGORIAN_DAY, days), skip_nulls=False)
    return pc.if_else(pc.less(days, FIRST_GREGORIAN_DAY), moved, 0)
