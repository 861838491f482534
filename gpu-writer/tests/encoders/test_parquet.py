# SPDX-License-Identifier: Apache-2.0
import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import metadata, read, without_zones, written
from spark_like import UTC, WHEN, spark_table

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import (
    BloomFilter,
    Codec,
    Compression,
    ParquetOptions,
    Rebase,
    TimestampType,
)
from updraft_writer.encoders.parquet import ParquetEncoder


@pytest.mark.parametrize("timestamps", [TimestampType.TIMESTAMP_TYPE_INT96, TimestampType.TIMESTAMP_TYPE_MICROS])
def test_every_type_that_spark_has_comes_back_as_it_was(timestamps: TimestampType) -> None:
    table = spark_table()
    got = read(written(table, table, timestamps=timestamps))
    assert without_zones(got).to_pylist() == without_zones(pa.concat_tables([table, table])).to_pylist()


@pytest.mark.parametrize(
    ("compression", "shown"),
    [
        (Compression(), "SNAPPY"),
        (Compression(codec=Codec.CODEC_NONE), "UNCOMPRESSED"),
        (Compression(codec=Codec.CODEC_ZSTD, level=19), "ZSTD"),
        (Compression(codec=Codec.CODEC_LZ4), "LZ4"),
        (Compression(codec=Codec.CODEC_GZIP, level=9), "GZIP"),
    ],
)
def test_codecs_are_spark_s(compression: Compression, shown: str) -> None:
    data = written(spark_table(), compression=compression)
    assert metadata(data).row_group(0).column(4).compression == shown
    assert read(data).num_rows == 100


def test_a_higher_level_makes_a_smaller_file() -> None:
    table = pa.table({"s": [f"row {index * index}" for index in range(50_000)]})
    small, large = (
        len(written(table, compression=Compression(codec=Codec.CODEC_ZSTD, level=level))) for level in (19, 1)
    )
    assert small < large


@pytest.mark.parametrize(
    ("compression", "says"),
    [
        (Compression.FromString(b"\x08\x63"), "unknown codec 99"),
        (Compression(codec=Codec.CODEC_SNAPPY, level=3), "snappy has no levels"),
        (Compression(codec=Codec.CODEC_ZSTD, level=23), "levels .* to 22, not 23"),
    ],
)
def test_what_a_codec_cannot_do_is_refused_before_any_data(compression: Compression, says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        ParquetEncoder(spark_table(1).schema, ParquetOptions(compression=compression), {})


def test_decimals_are_stored_by_their_precision_as_spark_does() -> None:
    columns = metadata(written(spark_table())).schema
    stored = {columns.column(index).path: columns.column(index).physical_type for index in range(len(columns))}
    assert stored["small_decimal"] == "INT32"
    assert stored["decimal"] == "INT64"
    assert stored["large_decimal"] == "FIXED_LEN_BYTE_ARRAY"


def test_legacy_decimals_are_bytes() -> None:
    columns = metadata(written(spark_table(), legacy_decimals=True)).schema
    assert columns.column(7).physical_type == "FIXED_LEN_BYTE_ARRAY"


@pytest.mark.parametrize(
    ("timestamps", "stored"),
    [
        (TimestampType.TIMESTAMP_TYPE_UNSPECIFIED, "INT96"),
        (TimestampType.TIMESTAMP_TYPE_INT96, "INT96"),
        (TimestampType.TIMESTAMP_TYPE_MICROS, "timeUnit=microseconds"),
        (TimestampType.TIMESTAMP_TYPE_MILLIS, "timeUnit=milliseconds"),
    ],
)
def test_timestamps_are_stored_as_spark_is_told(timestamps: TimestampType, stored: str) -> None:
    column = metadata(written(spark_table(), timestamps=timestamps)).schema.column(13)
    assert stored in f"{column.physical_type} {column.logical_type}"
    assert "INT96" in stored or "isAdjustedToUTC=true" in str(column.logical_type)


def test_milliseconds_are_cut_to_the_one_before_also_before_1970() -> None:
    table = pa.table({"t": pa.array([-1, -1000, 1999], UTC)})
    got = read(written(table, timestamps=TimestampType.TIMESTAMP_TYPE_MILLIS))
    assert got["t"].cast(pa.int64()).to_pylist() == [-1, -1, 1]


def test_milliseconds_are_not_cut_by_the_clocks_of_a_zone_which_show_an_hour_twice() -> None:
    half_past_two = [dt.datetime(2026, 10, 25, hour, 30, tzinfo=dt.UTC) for hour in (0, 1)]
    table = pa.table({"t": pa.array(half_past_two, pa.timestamp("us", "Europe/Prague"))})
    assert read(written(table, timestamps=TimestampType.TIMESTAMP_TYPE_MILLIS))["t"].to_pylist() == half_past_two


def test_a_timestamp_without_a_zone_is_microseconds_whatever_is_asked_for_instants() -> None:
    table = pa.table({"t": pa.array([1], pa.timestamp("us"))})
    for timestamps in TimestampType.values():
        logical_type = str(metadata(written(table, timestamps=timestamps)).schema.column(0).logical_type)
        assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical_type


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("columns", [1, 40])
def test_a_timestamp_without_a_zone_keeps_its_name_and_statistics_beside_int96(columns: int, pages: bool) -> None:
    wall = pa.array([dt.datetime(1500, 1, 1), None, dt.datetime(2026, 1, 1)], pa.timestamp("us"))
    instants = wall.cast(UTC)
    nested = pa.StructArray.from_arrays([instants, wall], names=["at", "shown"])
    names = [f"{kind} {index}" for index in range(columns) for kind in ("wall", "instant", "nested")]
    table = pa.table([wall, instants, nested] * columns, names=names)
    data = written(table, page_index=pages)
    for start in range(0, 4 * columns, 4):
        found = [metadata(data).schema.column(start + leaf) for leaf in range(4)]
        assert [column.physical_type for column in found] == ["INT64", "INT96", "INT96", "INT64"]
        for column in (found[0], found[3]):
            assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(column.logical_type)
    assert metadata(data).row_group(0).column(0).statistics.min == dt.datetime(1500, 1, 1)
    assert without_zones(read(data)).equals(without_zones(table))


def test_a_timestamp_without_a_zone_keeps_its_field_id_beside_int96() -> None:
    ids = [{"PARQUET:field_id": str(number)} for number in (1, 2000)]
    schema = pa.schema([pa.field("at", UTC, metadata=ids[0]), pa.field("shown", pa.timestamp("us"), metadata=ids[1])])
    data = written(schema.empty_table())
    found = pq.read_schema(pa.BufferReader(data))
    assert [field.metadata for field in found] == [{b"PARQUET:field_id": b"1"}, {b"PARQUET:field_id": b"2000"}]
    assert found.field("shown").type == pa.timestamp("us")


def test_milliseconds_are_stored_inside_of_nested_columns_too() -> None:
    one = pa.array([[{"t": -1}, None, {"t": None}], None, [], [{"t": 1999}]], pa.list_(pa.struct({"t": UTC})))
    lists = pa.concat_arrays([one, one]).slice(3, 3)
    maps = pa.array([[("k", 1500)], None, [("l", None)]], pa.map_(pa.string(), UTC))
    got = read(written(pa.table({"list": lists, "map": maps}), timestamps=TimestampType.TIMESTAMP_TYPE_MILLIS))
    before, after = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=step) for step in (-1, 1))
    assert str(got.schema.field("map").type.item_type) == "timestamp[ms, tz=UTC]"
    assert got["list"].to_pylist() == [[{"t": after}], [{"t": before}, None, {"t": None}], None]
    assert got["map"].to_pylist() == [[("k", after)], None, [("l", None)]]


@pytest.mark.parametrize(
    "old",
    [
        pa.array([None, dt.date(1582, 10, 14)], pa.date32()),
        pa.array([dt.datetime(1899, 12, 31, 23, 59, tzinfo=dt.UTC)], UTC),
        pa.array([[dt.date(1000, 1, 1)]], pa.list_(pa.date32())),
        pa.array([[("k", dt.date(1000, 1, 1))]], pa.map_(pa.string(), pa.date32())),
        pa.array([{"d": dt.date(1000, 1, 1)}], pa.struct({"d": pa.date32()})),
    ],
)
def test_a_value_of_an_uncertain_calendar_is_an_error_unless_it_is_said_which(old: pa.Array) -> None:
    table, exception = pa.table({"old": old}), Rebase.REBASE_EXCEPTION
    with pytest.raises(EncodeError, match="column 'old' has a date before 1582"):
        written(table, rebase=exception, int96_rebase=exception)
    assert without_zones(read(written(table))).equals(without_zones(table))


def test_dates_and_int96_timestamps_have_a_rebase_mode_each() -> None:
    dates, instants = (pa.table({"old": [value]}) for value in (dt.date(1000, 1, 1), WHEN.replace(year=1800)))
    written(dates, int96_rebase=Rebase.REBASE_EXCEPTION)
    written(instants, rebase=Rebase.REBASE_EXCEPTION)
    with pytest.raises(EncodeError):
        written(dates, rebase=Rebase.REBASE_EXCEPTION)
    with pytest.raises(EncodeError):
        written(instants, int96_rebase=Rebase.REBASE_EXCEPTION)


def test_the_first_values_of_the_new_calendar_are_no_error() -> None:
    written(
        pa.table(
            {
                "d": pa.array([dt.date(1582, 10, 15)]),
                "t": pa.array([dt.datetime(1900, 1, 1, tzinfo=dt.UTC)], UTC),
                "n": pa.array([dt.datetime(1000, 1, 1)], pa.timestamp("us")),
            }
        ),
        timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
        rebase=Rebase.REBASE_EXCEPTION,
    )


def test_a_part_of_a_map_column_is_judged_by_its_own_values() -> None:
    whole = pa.array([[("k", dt.date(1000, 1, 1))], [("k", dt.date(2000, 1, 1))]], pa.map_(pa.string(), pa.date32()))
    written(pa.table({"m": whole.slice(1)}), rebase=Rebase.REBASE_EXCEPTION)


def test_the_footer_has_spark_s_keys_and_not_arrow_s() -> None:
    keys = {"org.apache.spark.version": "4.3.0", "org.apache.spark.sql.parquet.row.metadata": "{}"}
    stored = metadata(written(spark_table(), footer=keys)).metadata
    assert {key.decode(): value.decode() for key, value in stored.items()} == keys


def test_field_ids_are_kept() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "17"})])
    data = written(pa.table({"a": [1]}).cast(schema))
    assert pq.read_schema(pa.BufferReader(data)).field("a").metadata == {b"PARQUET:field_id": b"17"}


def test_statistics_can_be_switched_off_and_are_on() -> None:
    assert metadata(written(spark_table())).row_group(0).column(4).statistics.has_min_max
    assert metadata(written(spark_table(), statistics=False)).row_group(0).column(4).statistics is None


def test_a_page_index_is_there_when_asked_for() -> None:
    for asked in (False, True):
        column = metadata(written(pa.table({"n": [1, 2]}), page_index=asked)).row_group(0).column(0)
        assert (column.has_offset_index, column.has_column_index) == (asked, asked)


def test_a_bloom_filter_is_there_when_asked_for() -> None:
    table = pa.table({"key": [f"key {index}" for index in range(1000)]})
    bloom_filters = [BloomFilter(column="key", distinct_values=1000)]
    assert len(written(table, bloom_filters=bloom_filters)) - len(written(table)) > 1000


def test_a_bloom_filter_over_no_column_is_refused_by_name() -> None:
    with pytest.raises(WriteOptionError, match="'nope': the columns are a"):
        ParquetEncoder(pa.schema({"a": pa.int64()}), ParquetOptions(bloom_filters=[BloomFilter(column="nope")]), {})


def test_a_type_that_parquet_does_not_have_is_refused_before_any_data() -> None:
    with pytest.raises(WriteOptionError, match="month_day_nano"):
        ParquetEncoder(pa.schema({"i": pa.month_day_nano_interval()}), ParquetOptions(), {})


def test_a_rebased_file_says_so_in_its_footer_and_others_do_not() -> None:
    table = pa.table({"d": [dt.date(1582, 10, 4)]})
    keys = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.timeZone": "Europe/Prague"}
    data = written(table, rebase=Rebase.REBASE_LEGACY, time_zone="Europe/Prague")
    assert {key.decode(): value.decode() for key, value in metadata(data).metadata.items()} == keys
    assert read(data)["d"].to_pylist() == [dt.date(1582, 10, 14)]
    assert metadata(written(table)).metadata is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rebase": Rebase.REBASE_LEGACY}, "needs the session's time zone"),
        ({"int96_rebase": Rebase.REBASE_LEGACY, "time_zone": "Asia/Kolkata"}, "only in UTC, not in Asia/Kolkata"),
        ({"rebase": 9}, "does not know the timestamp type or a rebase mode"),
        ({"timestamps": 9}, "does not know the timestamp type or a rebase mode"),
    ],
)
def test_what_cannot_be_rebased_is_refused_before_any_data(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        ParquetEncoder(pa.schema({"a": pa.list_(UTC)}), ParquetOptions(**options), {})


def test_a_file_without_rows_has_its_schema() -> None:
    empty = spark_table(0)
    data = b"".join(ParquetEncoder(empty.schema, ParquetOptions(), {}).close())
    assert read(data).num_rows == 0
    assert read(data).column_names == empty.column_names


@pytest.mark.parametrize("rows", [[{"n": 1}, None], [None], [{"n": 1}]])
def test_a_field_that_is_never_null_may_lie_in_a_struct_that_is(rows: list[Any]) -> None:
    table = pa.table({"s": pa.array(rows, pa.struct([pa.field("n", pa.int64(), nullable=False)]))})
    data = written(table)
    assert read(data)["s"].to_pylist() == rows
    assert metadata(data).schema.column(0).max_definition_level == 1


def test_a_null_where_none_may_be_is_an_error() -> None:
    child = pa.array([1, None])
    struct = pa.StructArray.from_arrays([child], fields=[pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(EncodeError, match="'n' is declared as never null"):
        written(pa.table({"s": struct}))


def test_each_write_is_one_row_group_and_the_footer_tells_them() -> None:
    table = spark_table()
    encoder = ParquetEncoder(table.schema, ParquetOptions(), {})
    for _ in range(3):
        encoder.write(table)
    encoder.close()
    assert (encoder.footer.row_groups, encoder.footer.rows) == (3, 300)
