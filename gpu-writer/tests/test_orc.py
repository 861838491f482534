# SPDX-License-Identifier: Apache-2.0
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from spark_like import BEFORE_1970, UTC, WHEN, spark_table

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import Codec, Compression, OrcOptions
from updraft_writer.encoders.orc import OrcEncoder

AFTER_2037 = WHEN.replace(year=2038)
# Before 1970 the encoder gives up: see the test of it.
NEW = (WHEN, None)


def encoded(*tables: pa.Table, **options: Any) -> bytes:
    encoder = OrcEncoder(tables[0].schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)
    pieces = [piece for table in tables for piece in encoder.write(table)]
    return b"".join(pieces + encoder.close())


def written(*tables: pa.Table, **options: Any) -> orc.ORCFile:
    return orc.ORCFile(pa.BufferReader(encoded(*tables, **options)))


def test_every_type_that_spark_has_comes_back_as_it_was() -> None:
    of_their_own = ["date", "instant", "wall_clock", "times"]
    table = spark_table(instants=NEW)
    got = written(table, table).read().drop_columns(of_their_own)
    assert got.to_pylist() == pa.concat_tables([table, table]).drop_columns(of_their_own).to_pylist()


def test_a_time_without_a_zone_is_an_integer_that_spark_knows_by_its_attribute() -> None:
    field = written(spark_table(instants=NEW)).read().schema.field("wall_clock")
    assert (field.type, field.metadata) == (pa.int64(), {b"spark.sql.catalyst.type": b"timestamp_ntz"})


def test_dates_are_those_of_the_calendar_of_orc() -> None:
    old, new = dt.date(1582, 10, 4), dt.date(1582, 10, 15)
    got = written(pa.table({"d": [old, None, new]})).read()
    assert got["d"].to_pylist() == [dt.date(1582, 10, 14), None, new]


def test_an_instant_is_the_wall_clock_of_the_writer_s_time_zone() -> None:
    table = pa.table({"t": pa.array([dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC), None], UTC)})
    got = written(table, time_zone="Europe/Prague").read()
    assert got.schema.field("t").type == pa.timestamp("ns")
    assert got["t"].cast(pa.timestamp("us")).to_pylist() == [dt.datetime(2026, 7, 1, 14), None]


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
    assert written(spark_table(instants=NEW), compression=Compression(codec=codec)).compression == shown


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (pa.schema({"a": pa.month_day_nano_interval()}), {}, "cannot be written as ORC"),
        (pa.schema({"a": pa.list_(UTC, 3)}), {}, "'a': dates and timestamps inside of fixed_size_list"),
        (pa.schema({"a": UTC}), {"bloom_filter_columns": ["b"]}, "bloom filter over 'b': the columns are a"),
        (pa.schema({"a": UTC}), {"time_zone": "Nowhere/City"}, "no time zone 'Nowhere/City'"),
        (pa.schema({"a": UTC}), {"compression": Compression(codec=Codec.CODEC_ZSTD, level=3)}, "no compression levels"),
    ],
)
def test_what_orc_cannot_do_is_refused_before_any_data(schema: pa.Schema, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        OrcEncoder(schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)


@pytest.mark.parametrize("codec", [Codec.CODEC_NONE, Codec.CODEC_ZSTD])
@pytest.mark.parametrize("length", [5, 100_000])
def test_the_footer_has_the_keys_that_were_given(codec: Codec, length: int) -> None:
    table, keys = spark_table(instants=NEW), {"org.apache.spark.version": "4.3.0", "long": "x" * length}
    encoder = OrcEncoder(table.schema, OrcOptions(compression=Compression(codec=codec)), keys, max_stripe_bytes=1 << 30)
    file = orc.ORCFile(pa.BufferReader(b"".join(encoder.write(table) + encoder.close())))
    assert {key.decode(): value.decode() for key, value in file.metadata.items()} == keys
    assert file.read().num_rows == table.num_rows


def test_an_hour_that_clocks_show_twice_is_an_error_rather_than_another_time() -> None:
    table = pa.table({"t": pa.array([dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC)], UTC)})
    with pytest.raises(EncodeError, match="clocks of Europe/Prague show this one twice"):
        written(table, time_zone="Europe/Prague")
    written(table, time_zone="UTC")


@pytest.mark.parametrize(
    ("old", "zone", "written_as"),
    [
        (BEFORE_1970, "UTC", None),
        (BEFORE_1970.replace(microsecond=0), "Europe/Prague", None),
        (AFTER_2037, "Europe/Prague", None),
        (AFTER_2037, "UTC", AFTER_2037.replace(tzinfo=None)),
        (BEFORE_1970.replace(microsecond=0), "UTC", dt.datetime(1950, 1, 1)),
    ],
)
def test_an_instant_that_zones_or_seconds_do_not_reach_is_right_or_an_error(
    old: dt.datetime, zone: str, written_as: dt.datetime | None
) -> None:
    table = pa.table({"t": pa.array([old, WHEN, None], UTC)})
    if written_as is None:
        with pytest.raises(EncodeError, match="a timestamp before 1970"):
            written(table, time_zone=zone)
    else:
        got = written(table, time_zone=zone).read(columns=["t"])["t"].cast(pa.timestamp("us"))
        assert got.to_pylist() == [written_as, WHEN.replace(tzinfo=None), None]


def test_a_bloom_filter_makes_the_file_larger_for_the_column_that_was_named() -> None:
    table = pa.table({"row": pa.array([{"x": 1}] * 1000), "key": list(range(1000))})
    sizes = [len(encoded(table, bloom_filter_columns=columns)) for columns in ([], ["row"], ["key"])]
    assert sizes[0] < sizes[1] < sizes[2]


def test_stripes_are_as_large_as_asked_for() -> None:
    table = pa.table({"n": pa.array([hash(str(index)) for index in range(200_000)], pa.int64())})
    assert written(table, stripe_bytes=256 * 1024).nstripes > written(table).nstripes


def test_rows_that_are_converted_in_parts_keep_their_order() -> None:
    rows = 200_000
    table = pa.table({"t": pa.array(range(0, rows * 1_000_000, 1_000_000), UTC), "n": pa.arange(0, rows, 1)})
    got = written(table, table.slice(7, 5)).read()
    assert got["n"].to_pylist() == [*range(rows), *range(7, 12)]
    assert got["t"].cast(pa.timestamp("s")).cast(pa.int64()).equals(got["n"])


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
