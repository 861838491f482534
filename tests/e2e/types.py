# SPDX-License-Identifier: Apache-2.0
"""Types of the differential suite, and the table that holds values of all of them.

The table has one partition for each shape that has broken a reader: mixed values with nulls, no rows, only nulls, one
row, no null at all.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from tests.support.spark import SPARK_VERSION

_MIB = 1 << 20
_D = decimal.Decimal


@dataclass(frozen=True, eq=False)
class TypeCase:
    """Spark type with values that are hard for it; `expression` derives the column if Parquet cannot hold it."""

    name: str
    type: T.DataType
    values: Sequence[Any] = ()
    expression: str | None = None


def _instant(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]


def _type_cases() -> list[TypeCase]:
    instants = (_instant(1970, 1, 1), _instant(2024, 2, 29, 12, 34, 56, 123456), _instant(1900, 1, 1, 0, 0, 1))
    dates = (datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31))
    pair = _struct(a=T.IntegerType(), b=T.StringType())
    inner = _struct(d=T.DateType(), m=T.MapType(T.StringType(), T.DoubleType()))
    return [
        TypeCase("boolean", T.BooleanType(), (True, False)),
        TypeCase("tinyint", T.ByteType(), (-128, 0, 127)),
        TypeCase("smallint", T.ShortType(), (-(2**15), 0, 2**15 - 1)),
        TypeCase("int", T.IntegerType(), (-(2**31), 0, 2**31 - 1)),
        TypeCase("bigint", T.LongType(), (-(2**53), 0, 2**53)),
        # pandas turns integers next to nulls into floats, so these cannot be returned: stock's error is the answer.
        TypeCase("bigint_extreme", T.LongType(), (-(2**63), 0, 2**63 - 1, 2**53 + 1)),
        TypeCase("float", T.FloatType(), (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5)),
        TypeCase("double", T.DoubleType(), (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 0.1)),
        TypeCase("decimal_short", T.DecimalType(10, 2), (_D("0.00"), _D("-12345678.90"), _D("99999999.99"))),
        TypeCase("decimal_wide", T.DecimalType(38, 18), (_D("0"), _D("-12345678901234567890.123456789012345678"))),
        TypeCase("date", T.DateType(), dates),
        TypeCase("timestamp", T.TimestampType(), instants),
        TypeCase("timestamp_ntz", T.TimestampNTZType(), instants),
        TypeCase("day_time_interval", T.DayTimeIntervalType(), (datetime.timedelta(0), datetime.timedelta(-3, 7, 11))),
        TypeCase("string", T.StringType(), ("", "a\0b", "žluťoučký 🐎", " ", "x" * _MIB)),
        TypeCase("binary", T.BinaryType(), (bytearray(), bytearray(b"\0\xff"), bytearray(range(256)))),
        TypeCase("array_int", T.ArrayType(T.IntegerType()), ([], [1, None, 3], [None])),
        TypeCase("array_string", T.ArrayType(T.StringType()), ([], ["", None, "é"], ["a"])),
        TypeCase("array_array", T.ArrayType(T.ArrayType(T.DoubleType())), ([], [[], None, [0.5, None]], [[1.0]])),
        TypeCase("array_timestamp", T.ArrayType(T.TimestampType()), ([instants[1], None], [])),
        TypeCase("array_struct", T.ArrayType(pair), ([(1, "x"), None, (None, None)], [])),
        TypeCase("map_string_int", T.MapType(T.StringType(), T.IntegerType()), ({}, {"a": 1, "b": None}, {"": 0})),
        TypeCase("map_int_array", T.MapType(T.IntegerType(), T.ArrayType(T.StringType())), ({1: ["p", None]}, {2: []})),
        TypeCase("struct", _struct(a=T.LongType(), b=T.StringType()), ((1, "one"), (None, None), (2**40, ""))),
        TypeCase("struct_nested", _struct(s=inner, l=T.ArrayType(T.IntegerType())), _nested_structs()),
        *_user_defined(),
        *_variant(),
        *_time_of_day(),
        TypeCase("void", T.NullType(), expression="null"),
        TypeCase("year_month_interval", T.YearMonthIntervalType(), expression="make_ym_interval(`tinyint`, 3)"),
        *_calendar_interval(),
    ]


def _user_defined() -> list[TypeCase]:
    # Before 4.0, the type's module imports the pandas API on Spark, which does not run on NumPy 2.
    if SPARK_VERSION < (4, 0):
        return []
    from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

    return [TypeCase("point_udt", ExamplePointUDT(), (ExamplePoint(1.0, 2.0), ExamplePoint(-0.5, 0.0)))]


def _variant() -> list[TypeCase]:
    if SPARK_VERSION < (4, 0):
        return []
    expression = "parse_json(to_json(struct(`int`, `array_string`)))"
    return [TypeCase("variant", T.VariantType(), expression=expression)]


def _calendar_interval() -> list[TypeCase]:
    # Before 4.0, PySpark has no such type.
    if SPARK_VERSION < (4, 0):
        return []
    return [TypeCase("calendar_interval", T.CalendarIntervalType(), expression="make_interval(`tinyint`, 3)")]


def _time_of_day() -> list[TypeCase]:
    if SPARK_VERSION < (4, 1):
        return []
    expression = "cast(date_format(timestamp_ntz, 'HH:mm:ss.SSSSSS') as time(6))"
    return [TypeCase("time", T.TimeType(), expression=expression)]


def _struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def _nested_structs() -> Sequence[Any]:
    return (((datetime.date(2000, 1, 1), {"k": 0.5}), [1, None]), (None, []), ((None, None), None))


TYPE_CASES = _type_cases()
_STORED_CASES = [case for case in TYPE_CASES if case.expression is None]
# Parquet schema of the table; a reader that is given it needs no job to infer it.
STORED = T.StructType([T.StructField("id", T.IntegerType()), *(T.StructField(c.name, c.type) for c in _STORED_CASES)])


def write_table(spark: SparkSession, path: Path) -> None:
    """Write the stored cases as Parquet, with one file for each shape, named so that they can be distinguished."""
    stored = _STORED_CASES
    longest = max(len(case.values) for case in stored) + 1
    shapes = [
        [[(*case.values, None)[row % (len(case.values) + 1)] for case in stored] for row in range(longest)],
        [],
        [[None for _ in stored] for _ in range(3)],
        [[case.values[0] for case in stored]],
        [[case.values[row % len(case.values)] for case in stored] for row in range(longest)],
    ]
    for index, rows in enumerate(shapes):
        numbered = [(index * 100 + row, *values) for row, values in enumerate(rows)]
        frame = spark.createDataFrame(numbered, STORED).coalesce(1)
        frame.write.mode("overwrite").parquet(str(path / f"shape={index}"))
