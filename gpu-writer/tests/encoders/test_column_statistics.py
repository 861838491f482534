# SPDX-License-Identifier: Apache-2.0
"""Statistics for receipts: the footer's values for each column, merged over row groups and limited in size."""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from spark_like import UTC

from updraft.v1.write_pb2 import Bound, ColumnStatistics, OrcOptions, ParquetOptions, Rebase, TimestampType
from updraft_writer.encoders.column_statistics import MAX_BOUND_BYTES, MAX_STATISTICS_BYTES
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder

NAN, INFINITY = float("nan"), float("inf")


def statistics(*tables: pa.Table, **options: Any) -> dict[str, ColumnStatistics]:
    options = {"timestamps": TimestampType.TIMESTAMP_TYPE_MICROS, **options}
    encoder = ParquetEncoder(tables[0].schema, ParquetOptions(**options), {})
    for table in tables:
        encoder.write(table)
    encoder.close()
    assert encoder.footer.rows == sum(table.num_rows for table in tables)
    return {column.path: column for column in encoder.footer.columns}


def bounds(*columns: pa.Array, **options: Any) -> tuple[Any, Any]:
    """Return the bounds of a column with these row groups; an absent bound is None."""
    [found] = statistics(*(pa.table({"c": column}) for column in columns), **options).values()
    return value(found, "minimum"), value(found, "maximum")


def value(column: ColumnStatistics, side: str) -> Any:
    if not column.HasField(side):
        return None
    bound: Bound = getattr(column, side)
    return getattr(bound, str(bound.WhichOneof("value")))


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([True, False, None]), (False, True)),
        (pa.array([3, None, -128], pa.int8()), (-128, 3)),
        (pa.array([2**63 - 1, -(2**63)], pa.int64()), (-(2**63), 2**63 - 1)),
        (pa.array([1.5, -INFINITY], pa.float32()), (-INFINITY, 1.5)),
        (pa.array([1.5, None, 2.5], pa.float64()), (1.5, 2.5)),
        (pa.array(["b", "a\0", "ž"]), (b"a\0", "ž".encode())),
        (pa.array([b"\xff", b"", None]), (b"", b"\xff")),
        (pa.array([day("1969-12-31"), day("9999-12-31")]), (-1, 2932896)),
        (pa.array([-1, 5], UTC), (-1, 5)),
        (pa.array([-1, 5], pa.timestamp("us")), (-1, 5)),
        (pa.array([0, 86_399_999_999], pa.time64("us")), (0, 86_399_999_999)),
        (pa.array([decimal.Decimal("-1.28"), decimal.Decimal("1.28")], pa.decimal128(5, 2)), (b"\x80", b"\x00\x80")),
        (pa.array([decimal.Decimal("-0.01"), decimal.Decimal(0)], pa.decimal128(30, 2)), (b"\xff", b"\x00")),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_bounds_are_in_the_types_of_the_table(column: pa.Array, expected: tuple[Any, Any]) -> None:
    assert bounds(column) == expected
    [found] = statistics(pa.table({"c": column})).values()
    assert (found.minimum.exact, found.maximum.exact, found.nulls) == (True, True, column.null_count)


def test_bounds_and_nulls_are_those_of_all_row_groups() -> None:
    groups = [[5, None], [None, None], [-7, 9], []]
    assert bounds(*(pa.array(group, pa.int64()) for group in groups)) == (-7, 9)
    [found] = statistics(*(pa.table({"c": pa.array(group, pa.int64())}) for group in groups)).values()
    assert found.nulls == 3


def test_a_column_without_values_has_no_bounds() -> None:
    assert bounds(pa.nulls(5, pa.int64())) == (None, None)
    assert bounds(pa.array([], pa.string())) == (None, None)


def test_a_nan_in_any_row_group_leaves_the_bounds_unknown() -> None:
    for with_nan in ([1.0, NAN], [NAN], [-NAN, None]):
        assert bounds(pa.array([1.0, 2.0]), pa.array(with_nan), pa.array([3.0])) == (None, None)


def test_zeros_are_bounded_on_both_sides() -> None:
    least, most = bounds(pa.array([0.0, -0.0]))
    assert (str(least), str(most)) == ("-0.0", "0.0")


def test_timestamps_are_microseconds_in_files_of_milliseconds_too() -> None:
    milliseconds = TimestampType.TIMESTAMP_TYPE_MILLIS
    assert bounds(pa.array([-1, 1999], UTC), timestamps=milliseconds) == (-1000, 1000)


def test_types_without_usable_bounds_have_none() -> None:
    int96 = pa.table({"c": pa.array([1, 2], UTC)})
    assert statistics(int96, timestamps=TimestampType.TIMESTAMP_TYPE_INT96) == {}
    assert bounds(pa.array([1, 2], pa.float16())) == (None, None)
    assert bounds(pa.array([1, 2**63], pa.uint64())) == (None, None)


def test_dates_in_the_hybrid_calendar_have_no_bounds() -> None:
    table = pa.table({"day": [day("1500-01-01")], "n": [1]})
    found = statistics(table, rebase=Rebase.REBASE_LEGACY, time_zone="UTC")
    assert value(found["day"], "minimum") is None
    assert value(found["n"], "minimum") == 1


def test_nested_columns_are_named_by_their_paths() -> None:
    struct = pa.array([{"a": 1, "b": {"c": "x"}}, None])
    found = statistics(pa.table({"s": struct, "l": pa.array([[1, None], []], pa.list_(pa.int64()))}))
    assert list(found) == ["s.a", "s.b.c", "l.list.element"]
    assert (value(found["s.a"], "maximum"), found["s.a"].nulls) == (1, 1)


@pytest.mark.parametrize(
    ("longest", "least", "most"),
    [
        ("a" * 300, b"a" * 256, b"a" * 255 + b"b"),
        ("a" * 255 + "ž" * 9, b"a" * 255, b"a" * 254 + b"b"),
        ("a" + "\U0010ffff" * 100, b"a" + "\U0010ffff".encode() * 63, b"b"),
        ("\U0010ffff" * 100, "\U0010ffff".encode() * 64, None),
        ("\ud7ff" * 100, "\ud7ff".encode() * 85, "\ud7ff".encode() * 84 + "\ue000".encode()),
        (b"\x01" + b"\xff" * 300, b"\x01" + b"\xff" * 255, b"\x02"),
        (b"\xff" * 300, b"\xff" * 256, None),
    ],
    ids=range(7),
)
def test_long_values_are_shortened_to_bounds_that_are_not_exact(
    longest: str | bytes, least: bytes, most: bytes | None
) -> None:
    [found] = statistics(pa.table({"c": [longest]})).values()
    assert (value(found, "minimum"), value(found, "maximum")) == (least, most)
    assert (found.minimum.exact, found.maximum.exact) == (False, False)
    raw = longest.encode() if isinstance(longest, str) else longest
    assert least <= raw
    assert most is None or most >= raw
    assert len(least) <= MAX_BOUND_BYTES


@pytest.mark.parametrize("raw", [b"a\x80" + "\U0001f600".encode() * 100, b"a\xff" + b"\x01" * 400], ids=range(2))
def test_a_long_string_that_is_not_utf8_has_no_bounds(raw: bytes) -> None:
    column = pa.Array.from_buffers(pa.string(), 1, pa.array([raw]).buffers())
    assert bounds(column) == (None, None)


def test_values_that_the_footer_leaves_out_for_their_length_are_unknown() -> None:
    assert bounds(pa.array(["x" * 5000, "a"])) == (None, None)


def test_a_file_of_many_columns_has_statistics_of_the_first_ones() -> None:
    names = [f"column with a long name {number:05}" for number in range(3000)]
    found = statistics(pa.table({name: ["x" * 250] for name in names}))
    assert list(found) == names[: len(found)]
    assert 1000 < len(found) < len(names)
    assert sum(column.ByteSize() for column in found.values()) <= MAX_STATISTICS_BYTES


def test_a_file_without_statistics_has_none_here() -> None:
    assert statistics(pa.table({"c": [1]}), statistics=False) == {}


def test_orc_has_no_statistics_here() -> None:
    encoder = OrcEncoder(pa.schema({"c": pa.int64()}), OrcOptions(), {}, max_stripe_bytes=1 << 26)
    encoder.close()
    assert encoder.footer.columns == ()
