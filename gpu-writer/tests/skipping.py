# SPDX-License-Identifier: Apache-2.0
"""Columns of every type, laid out so that readers can skip rows by each of their values, and filters for them."""

import datetime as dt
import decimal
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

NAN, INFINITY = float("nan"), float("inf")
# With a sign bit, as x86 makes it.
OTHER_NAN = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
UTC = dt.UTC
COMPARISONS = ("=", "<", "<=", ">", ">=", "<>")
# Operators for each value by its index: "=" and both directions. Floats, which readers order differently, get every
# operator.
_OPERATORS = (("=", "<", ">="), ("=", "<", ">=", "<>"), ("=", "<=", ">"), ("=", "<=", ">"))
# Consecutive rows of one value: several pages, because the test files have pages of 16 values or more.
_RUN = 32
# Values of each row group, by index; None is null.
_ROW_GROUPS: tuple[tuple[int | None, ...], ...] = (
    (0,),
    (1,),
    (2,),
    (3,),
    (0, 3),
    (1, 2),
    (None, 0),
    (None,),
    (0, 1, None, 2, 3),
)


@dataclass(frozen=True)
class Case:
    """Column with four values of one type: plain, or at `struct.x`, `list[0]` or `map['k']`."""

    name: str
    data_type: pa.DataType
    values: tuple[Any, Any, Any, Any]
    spark: str = ""
    duckdb: str = ""
    place: str = "column"

    @property
    def column_type(self) -> pa.DataType:
        match self.place:
            case "struct":
                return pa.struct({"x": self.data_type})
            case "list":
                return pa.list_(self.data_type)
            case "map":
                return pa.map_(pa.string(), self.data_type)
        return self.data_type

    @property
    def field(self) -> pa.Field:
        """Field of its column, with Spark's type name in the metadata if Spark's ORC reader needs it."""
        name = {"spark.sql.catalyst.type": self.spark} if self.spark.startswith("interval") else None
        return pa.field(self.name, self.column_type, metadata=name)

    @property
    def leaf(self) -> str:
        """Path of its values in a Parquet file."""
        suffix = {"struct": ".x", "list": ".list.element", "map": ".key_value.value"}
        return self.name + suffix.get(self.place, "")

    def row(self, number: int | None) -> Any:
        value = None if number is None else self.values[number]
        match self.place:
            case "struct":
                return {"x": value}
            case "list":
                return [value]
            case "map":
                return [("k", value)]
        return value


def _days(*texts: str) -> Any:
    return tuple(map(dt.date.fromisoformat, texts))


def _times(*texts: str, zone: dt.tzinfo | None = None) -> Any:
    return tuple(dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts)


def _integers(bits: int, *, signed: bool = True) -> Any:
    half = 1 << (bits - 1)
    return (-half, -1, 0, half - 1) if signed else (0, half - 1, half, 2 * half - 1)


def _decimals(*texts: str) -> Any:
    return tuple(map(decimal.Decimal, texts))


_ZEROS, _EDGES = (NAN, -0.0, 0.0, 3.0), (OTHER_NAN, -INFINITY, INFINITY, 5.0)
_TIMES = ("0001-01-01T00:00:00", "1582-10-04T23:59:59.999", "1969-12-31T23:59:59.999", "9999-12-31T23:59:59.999")
_DOUBLE = ("double", "DOUBLE")

FLOATS = [
    Case("half", pa.float16(), _ZEROS, duckdb="FLOAT"),
    Case("float", pa.float32(), _ZEROS, "float", "FLOAT"),
    Case("float_edges", pa.float32(), _EDGES, "float", "FLOAT"),
    Case("double", pa.float64(), _ZEROS, *_DOUBLE),
    Case("double_edges", pa.float64(), _EDGES, *_DOUBLE),
    Case("double_in_struct", pa.float64(), _ZEROS, *_DOUBLE, place="struct"),
    Case("double_in_list", pa.float64(), _ZEROS, *_DOUBLE, place="list"),
    Case("double_in_map", pa.float64(), _ZEROS, *_DOUBLE, place="map"),
]
CASES = [
    *FLOATS,
    Case("flag", pa.bool_(), (True, False, True, False), "boolean", "BOOLEAN"),
    Case("byte", pa.int8(), _integers(8), "tinyint", "TINYINT"),
    Case("short", pa.int16(), _integers(16), "smallint", "SMALLINT"),
    Case("int", pa.int32(), _integers(32), "int", "INTEGER"),
    Case("long", pa.int64(), _integers(64), "bigint", "BIGINT"),
    Case("long_in_struct", pa.int64(), _integers(64), "bigint", "BIGINT", place="struct"),
    Case("unsigned_byte", pa.uint8(), _integers(8, signed=False), duckdb="UTINYINT"),
    Case("unsigned_short", pa.uint16(), _integers(16, signed=False), duckdb="USMALLINT"),
    Case("unsigned_int", pa.uint32(), _integers(32, signed=False), duckdb="UINTEGER"),
    Case("unsigned_long", pa.uint64(), _integers(64, signed=False), duckdb="UBIGINT"),
    Case("decimal_9", pa.decimal128(9, 2), _decimals("-9999999.99", "-0.01", "0", "9999999.99"), "decimal(9, 2)"),
    Case("decimal_18", pa.decimal128(18, 4), _decimals("-1e13", "-0.0001", "100", "1e13"), "decimal(18, 4)"),
    Case("decimal_38", pa.decimal128(38, 10), _decimals("-1e27", "-1e-10", "0", "1e27"), "decimal(38, 10)"),
    Case("text", pa.string(), ("", "a\0b", "žluť", "\U0001f600"), "string", "VARCHAR"),
    Case("long_text", pa.string(), ("x" * 70, "x" * 5000, "x" * 5000 + "y", "\U0010ffff" * 40), "string", "VARCHAR"),
    Case("text_in_struct", pa.string(), ("", "a", "b" * 1100, "ž"), "string", "VARCHAR", place="struct"),
    Case("bytes", pa.binary(), (b"", b"\x7f", b"\x80", b"\xff" * 70), "binary", "BLOB"),
    Case("long_bytes", pa.binary(), (b"\x00", b"\xff" * 64, b"\xff" * 5000, b"\xff" * 5001), "binary", "BLOB"),
    Case("fixed_bytes", pa.binary(2), (b"\x00\x00", b"\x7f\xff", b"\x80\x00", b"\xff\xff"), duckdb="BLOB"),
    Case("date", pa.date32(), _days("0001-01-01", "1582-10-04", "1582-10-15", "9999-12-31"), "date", "DATE"),
    Case("wall_clock", pa.timestamp("us"), _times(*_TIMES), "timestamp_ntz", "TIMESTAMP"),
    Case("instant", pa.timestamp("us", "UTC"), _times(*_TIMES, zone=UTC), "timestamp", "TIMESTAMPTZ"),
    Case(
        "time_of_day", pa.time64("us"), (dt.time(0), dt.time(0, 0, 1), dt.time(12), dt.time(23, 59, 59)), duckdb="TIME"
    ),
    # Intervals as the connector sends them: months and microseconds.
    Case("months", pa.int32(), (-(1 << 31), -1, 0, (1 << 31) - 1), "interval year to month", "INTEGER"),
    Case("microseconds", pa.int64(), (-(1 << 53), -1, 0, 1 << 53), "interval day to second", "BIGINT"),
]
# Spark's ORC reader distinguishes 0.0 from -0.0, even in Spark's own files, so no filter here has a zero.
_NO_ZEROS = (NAN, -1.5, 1.5, 3.0)
ORC_CASES = [
    replace(case, values=_NO_ZEROS) if case.values is _ZEROS else case
    for case in CASES
    # The writer does not write times with a zone as ORC; the other excluded types are not Spark's.
    if case.spark and case.name != "instant"
]


def table(cases: list[Case]) -> pa.Table:
    """Return all row groups as one table; `id` counts the rows."""
    return pa.concat_tables(row_groups(cases))


def row_groups(cases: list[Case], *, first_id: int = 0) -> list[pa.Table]:
    """Return the row groups of a file with these columns and the column `id`."""
    groups: list[pa.Table] = []
    for numbers in _ROW_GROUPS:
        rows = [number for number in numbers for _ in range(_RUN)]
        columns = [pa.array([case.row(number) for number in rows], case.column_type) for case in cases]
        ids = pa.array(range(first_id, first_id + len(rows)), pa.int64())
        first_id += len(rows)
        schema = pa.schema([pa.field("id", pa.int64()), *(case.field for case in cases)])
        groups.append(pa.table([ids, *columns], schema=schema))
    return groups


def text(value: Any) -> str:
    """Return a value as a string that SQL can cast."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return "NaN" if value != value else repr(value).replace("inf", "Infinity")
        case dt.datetime():
            return value.isoformat(" ")
    return str(value)


def filters(case: Case) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each operator with the values on its right: one value, or two for IN."""
    values = tuple({repr(value): value for value in case.values}.values())
    every = pa.types.is_floating(case.data_type)
    for value, operators in zip(values, _OPERATORS, strict=False):
        for operator in COMPARISONS if every else operators:
            yield operator, (value,)
    yield "IN", values[::3]
    if every:
        yield "IN", values[1:3]


def wrong(conditions: list[Any], found: Sequence[Sequence[int]], there: Sequence[Sequence[int]]) -> list[str]:
    """Return the conditions that find wrong rows, as texts."""
    assert any(there)
    return [
        f"{condition}: {len(ours)} rows of {len(right)}"
        for condition, ours, right in zip(conditions, found, there, strict=True)
        if sorted(ours) != sorted(right)
    ]
