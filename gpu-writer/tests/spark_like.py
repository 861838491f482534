# SPDX-License-Identifier: Apache-2.0
"""Table with every kind of column that Spark writes, as Spark passes it to Arrow."""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa

UTC = pa.timestamp("us", "UTC")
WHEN = dt.datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=dt.UTC)
BEFORE_1970 = dt.datetime(1950, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)


def spark_table(rows: int = 100) -> pa.Table:
    """Return a table with nulls in every column, negative numbers, and empty and nested values."""

    def column(values: list[Any], data_type: pa.DataType) -> pa.Array:
        return pa.array([values[index % len(values)] for index in range(rows)], data_type)

    return pa.table(
        {
            "flag": column([True, None, False], pa.bool_()),
            "byte": column([-128, 127, None], pa.int8()),
            "short": column([-(2**15), None], pa.int16()),
            "int": column([None, 2**31 - 1], pa.int32()),
            "long": pa.array([None if index % 7 == 0 else index * 2**30 for index in range(rows)], pa.int64()),
            "float": column([1.5, None, float("-inf")], pa.float32()),
            "double": column([None, -0.0, 1e300], pa.float64()),
            "small_decimal": column([decimal.Decimal("1234567.89"), None], pa.decimal128(9, 2)),
            "decimal": column([None, decimal.Decimal("-12345678901234.5678")], pa.decimal128(18, 4)),
            "large_decimal": column([decimal.Decimal("1e20"), None], pa.decimal128(38, 10)),
            "text": column(["", "žluť", None, "a\0b"], pa.string()),
            "bytes": column([b"\0\xff", None, b""], pa.binary()),
            "date": column([dt.date(1970, 1, 1), None, dt.date(1600, 2, 29)], pa.date32()),
            "instant": column([WHEN, None, BEFORE_1970], UTC),
            "list": column([[1, None], None, []], pa.list_(pa.int32())),
            "map": column([[("a", 1.0), ("b", None)], None, []], pa.map_(pa.string(), pa.float64())),
            "struct": column(
                [{"x": 1, "y": ["s"]}, None, {"x": None, "y": None}],
                pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())}),
            ),
            "wall_clock": column([WHEN.replace(tzinfo=None), None, dt.datetime(1066, 10, 14, 9)], pa.timestamp("us")),
            "times": column(
                [[{"at": WHEN, "on": dt.date(2026, 1, 1)}, None], None, [{"at": None, "on": None}]],
                pa.list_(pa.struct({"at": UTC, "on": pa.date32()})),
            ),
        }
    )


def orc_table(rows: int = 100) -> pa.Table:
    """Return the same table without timestamps with a time zone, which are not written as ORC."""
    values = [[{"on": dt.date(2026, 1, 1)}, None], None, [{"on": None}]]
    dates = pa.array([values[index % len(values)] for index in range(rows)], pa.list_(pa.struct({"on": pa.date32()})))
    return spark_table(rows).drop_columns(["instant", "times"]).append_column("dates", dates)
