# SPDX-License-Identifier: Apache-2.0
import datetime as dt
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import orc
from spark_like import UTC, orc_table

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import Codec, Compression, OrcOptions
from updraft_writer.encoders.orc import OrcEncoder

ZSTD_3 = Compression(codec=Codec.CODEC_ZSTD, level=3)
# The first and the last instant of Spark's range, both sides of each second around 1970, and the calendar change.
SECOND = 1_000_000
HARD_MICROS = [
    -62_135_596_800 * SECOND,
    -62_135_596_800 * SECOND + 1,
    -12_219_292_800 * SECOND - 1,
    *(second * SECOND + part for second in range(-3, 2) for part in (0, 1, 999, 1000, 1001, 500_000, 999_999)),
    253_402_300_800 * SECOND - 1,
]


def encoded(*tables: pa.Table, **options: Any) -> bytes:
    encoder = OrcEncoder(tables[0].schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)
    pieces = [piece for table in tables for piece in encoder.write(table)]
    return b"".join(pieces + encoder.close())


def written(*tables: pa.Table, **options: Any) -> orc.ORCFile:
    return orc.ORCFile(pa.BufferReader(encoded(*tables, **options)))


def test_every_type_that_spark_has_comes_back_as_it_was() -> None:
    of_their_own = ["date", "wall_clock"]
    table = orc_table()
    got = written(table, table).read().drop_columns(of_their_own)
    assert got.to_pylist() == pa.concat_tables([table, table]).drop_columns(of_their_own).to_pylist()


def test_a_time_without_a_zone_is_an_integer_that_spark_knows_by_its_attribute() -> None:
    field = written(orc_table()).read().schema.field("wall_clock")
    assert (field.type, field.metadata) == (pa.int64(), {b"spark.sql.catalyst.type": b"timestamp_ntz"})


def test_dates_are_those_of_the_calendar_of_orc() -> None:
    old, new = dt.date(1582, 10, 4), dt.date(1582, 10, 15)
    got = written(pa.table({"d": [old, None, new]})).read()
    assert got["d"].to_pylist() == [dt.date(1582, 10, 14), None, new]


@pytest.mark.parametrize(
    ("codec", "shown"),
    [
        (Codec.CODEC_UNSPECIFIED, "SNAPPY"),
        (Codec.CODEC_NONE, "UNCOMPRESSED"),
        (Codec.CODEC_ZSTD, "ZSTD"),
        (Codec.CODEC_LZ4, "LZ4"),
        (Codec.CODEC_GZIP, "ZLIB"),
    ],
)
def test_codecs_are_spark_s(codec: Codec, shown: str) -> None:
    assert written(orc_table(), compression=Compression(codec=codec)).compression == shown


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (pa.schema({"a": pa.month_day_nano_interval()}), {}, "cannot be written as ORC"),
        (pa.schema({"a": pa.list_(pa.timestamp("us"), 3)}), {}, "'a': dates and timestamps inside fixed_size_list"),
        (pa.schema({"a": UTC}), {}, "'a' contains timestamp.us, tz=UTC.: .* fractions of a second before 1970"),
        (pa.schema({"a": pa.timestamp("s", "+02:00")}), {}, "'a' contains timestamp.s, tz=.02:00."),
        (pa.schema({"a": pa.map_(pa.string(), pa.list_(UTC))}), {}, "'a' contains timestamp"),
        (pa.schema({"a": pa.struct({"b": pa.timestamp("ns")})}), {}, "'a' contains .*; cast to timestamp.us."),
        (pa.schema({"a": pa.date64()}), {}, "'a' contains date64.*; cast to date32"),
        (pa.schema({"a": pa.int64()}), {"bloom_filter_columns": ["b"]}, "bloom filter over 'b': the columns are a"),
        (pa.schema({"a": pa.int64()}), {"compression": ZSTD_3}, "compression levels are not supported"),
    ],
)
def test_what_orc_cannot_do_is_refused_before_any_data(schema: pa.Schema, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        OrcEncoder(schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)


@pytest.mark.parametrize("codec", [Codec.CODEC_NONE, Codec.CODEC_ZSTD])
@pytest.mark.parametrize("length", [5, 100_000])
def test_the_footer_has_the_keys_that_were_given(codec: Codec, length: int) -> None:
    table, keys = orc_table(), {"org.apache.spark.version": "4.3.0", "long": "x" * length}
    encoder = OrcEncoder(table.schema, OrcOptions(compression=Compression(codec=codec)), keys, max_stripe_bytes=1 << 30)
    file = orc.ORCFile(pa.BufferReader(b"".join(encoder.write(table) + encoder.close())))
    assert {key.decode(): value.decode() for key, value in file.metadata.items()} == keys
    assert file.read().num_rows == table.num_rows


def leaf_of(data_type: pa.DataType, micros: list[int]) -> pa.Array:
    """Return the instants as values of a date or time type, as far as its range goes."""
    if pa.types.is_date32(data_type):
        return pa.array([value // (86_400 * SECOND) for value in micros], pa.int32()).cast(data_type)
    if pa.types.is_date64(data_type):
        return pa.array([value // 1000 for value in micros], data_type)
    if data_type.unit == "ns":
        return pa.array([value * 1000 + 1 for value in micros if abs(value) < 1 << 53], data_type)
    per_second = {"s": 1, "ms": 1000, "us": SECOND}[data_type.unit]
    return pa.array([value * per_second // SECOND for value in micros], data_type)


LEAVES = [
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Prague")),
]
NESTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "column": lambda leaf: leaf,
    "list": lambda leaf: pa.ListArray.from_arrays([0, len(leaf)], leaf),
    "large list": lambda leaf: pa.LargeListArray.from_arrays([0, len(leaf)], leaf),
    "fixed-size list": lambda leaf: pa.FixedSizeListArray.from_arrays(leaf, 1),
    "list view": lambda leaf: pa.ListViewArray.from_arrays([0], [len(leaf)], leaf),
    "struct": lambda leaf: pa.StructArray.from_arrays([leaf], ["v"]),
    "map": lambda leaf: pa.MapArray.from_arrays([0, len(leaf)], leaf, leaf),
    "dictionary": lambda leaf: leaf.dictionary_encode(),
    "run-end encoded": pc.run_end_encode,
    "union": lambda leaf: pa.UnionArray.from_sparse(pa.array([0] * len(leaf), pa.int8()), [leaf]),
}
WRITTEN_IN = {
    **{f"timestamp[{unit}]": {"column", "list", "large list", "struct", "map"} for unit in ("s", "ms", "us")},
    "date32[day]": {"column", "list", "large list", "fixed-size list", "struct", "map", "union"},
}


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("nesting", NESTED)
def test_a_schema_that_is_accepted_takes_every_date_and_time_of_spark(leaf: pa.DataType, nesting: str) -> None:
    random = Random(nesting)
    spread = [random.randrange(HARD_MICROS[0], HARD_MICROS[-1]) for _ in range(1000)]
    table = pa.table({"t": NESTED[nesting](leaf_of(leaf, [*HARD_MICROS, *spread]))})
    try:
        OrcEncoder(table.schema, OrcOptions(), {}, max_stripe_bytes=1 << 30)
    except WriteOptionError:
        assert nesting not in WRITTEN_IN.get(str(leaf), {})
    else:
        assert nesting in WRITTEN_IN.get(str(leaf), {})
        assert written(table, table).nrows == 2 * table.num_rows


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_without_a_zone_are_exact_in_every_unit(unit: str) -> None:
    times = leaf_of(pa.timestamp(unit), HARD_MICROS)
    got = written(pa.table({"t": times})).read()["t"]
    assert got.to_pylist() == times.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()


def test_a_bloom_filter_makes_the_file_larger_for_the_column_that_was_named() -> None:
    table = pa.table({"row": pa.array([{"x": 1}] * 1000), "key": list(range(1000))})
    sizes = [len(encoded(table, bloom_filter_columns=columns)) for columns in ([], ["row"], ["key"])]
    assert sizes[0] < sizes[1] < sizes[2]


def test_stripes_are_as_large_as_asked_for() -> None:
    table = pa.table({"n": pa.array([hash(str(index)) for index in range(200_000)], pa.int64())})
    assert written(table, stripe_bytes=256 * 1024).nstripes > written(table).nstripes


def test_rows_that_are_converted_in_parts_keep_their_order() -> None:
    rows = 200_000
    table = pa.table({"t": pa.array(range(rows), pa.timestamp("s")), "n": pa.arange(0, rows, 1)})
    got = written(table, table.slice(7, 5)).read()
    assert got["n"].to_pylist() == [*range(rows), *range(7, 12)]
    assert pc.divide(got["t"], SECOND).equals(got["n"])


@pytest.mark.parametrize("inner", [pa.int64(), pa.date32(), pa.list_(pa.int64()), pa.struct({"n": pa.int64()})])
def test_structs_keep_their_rows_also_beyond_what_is_converted_at_once_and_in_slices(inner: pa.DataType) -> None:
    rows = 70_000
    values = pa.arange(0, rows, 1)
    if pa.types.is_list(inner):
        values = pa.ListArray.from_arrays(pa.arange(0, rows + 1, 1).cast(pa.int32()), values)
    elif pa.types.is_struct(inner):
        values = pa.StructArray.from_arrays([values], names=["n"])
    elif pa.types.is_date32(inner):
        values = values.cast(pa.int32()).cast(inner)
    mask = pa.array([index % 3 == 0 for index in range(rows)])
    table = pa.table({"s": pa.StructArray.from_arrays([values], names=["v"], mask=mask)})
    got = written(table, table.slice(12_345, 5000)).read()
    assert got.to_pylist() == pa.concat_tables([table, table.slice(12_345, 5000)]).to_pylist()


def test_a_file_without_rows_has_its_schema() -> None:
    empty = pa.schema({"a": pa.int64(), "s": pa.string()}).empty_table()
    got = written(empty)
    assert (got.nrows, got.schema.names) == (0, ["a", "s"])


@pytest.mark.parametrize(("name", "has_filter"), [("n", True), ("d", False), ("on", False)])
def test_bloom_filters_are_made_only_where_equal_values_have_one_hash(name: str, has_filter: bool) -> None:
    table = pa.table({"n": [1, 2], "d": [0.0, -0.0], "on": [dt.date(1, 1, 1), dt.date(2026, 1, 1)]})
    asked_for, other = encoded(table, bloom_filter_columns=[name]), encoded(table)
    assert (len(asked_for) > len(other)) == has_filter
