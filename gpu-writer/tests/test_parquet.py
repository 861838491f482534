# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_like import UTC, spark_table

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import (
    BloomFilter,
    Codec,
    Compression,
    Dictionaries,
    ParquetOptions,
    Rebase,
    TimestampType,
)
from updraft_writer.encoders.dictionary_sampling import columns_worth_a_dictionary
from updraft_writer.encoders.parquet import ParquetEncoder


def written(*tables: pa.Table, footer: dict[str, str] | None = None, **options: Any) -> bytes:
    encoder = ParquetEncoder(tables[0].schema, ParquetOptions(**options), footer or {})
    pieces = [piece for table in tables for piece in encoder.write(table)]
    return b"".join(pieces + encoder.close())


def metadata(data: bytes) -> Any:
    return pq.read_metadata(pa.BufferReader(data))


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def without_zones(table: pa.Table) -> pa.Table:
    """INT96 and Spark's footers know no zone: the values are what counts."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))


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
        (Compression.FromString(b"\x08\x63"), "no codec has the number 99"),
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


def test_a_timestamp_without_a_zone_is_microseconds_whatever_is_asked_for_instants() -> None:
    table = pa.table({"t": pa.array([1], pa.timestamp("us"))})
    for timestamps in TimestampType.values():
        logical_type = str(metadata(written(table, timestamps=timestamps)).schema.column(0).logical_type)
        assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical_type


def test_int96_beside_a_timestamp_without_a_zone_is_refused_with_a_way_out() -> None:
    schema = pa.schema({"i": UTC, "s": pa.struct({"n": pa.timestamp("us")})})
    with pytest.raises(WriteOptionError, match="TIMESTAMP_MICROS"):
        ParquetEncoder(schema, ParquetOptions(), {})


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
    table = pa.table({"old": old})
    with pytest.raises(EncodeError, match="column 'old' has a date before 1582"):
        written(table)
    written(table, rebase=Rebase.REBASE_CORRECTED)


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
    )


def test_a_part_of_a_map_column_is_judged_by_its_own_values() -> None:
    whole = pa.array([[("k", dt.date(1000, 1, 1))], [("k", dt.date(2000, 1, 1))]], pa.map_(pa.string(), pa.date32()))
    written(pa.table({"m": whole.slice(1)}))


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
        column = metadata(written(spark_table(), page_index=asked)).row_group(0).column(4)
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


def test_the_rebase_mode_that_is_not_there_is_refused() -> None:
    with pytest.raises(WriteOptionError, match="LEGACY"):
        ParquetEncoder(pa.schema({"a": pa.int64()}), ParquetOptions(rebase=Rebase.REBASE_LEGACY), {})


def test_a_file_without_rows_has_its_schema() -> None:
    empty = spark_table(0)
    data = b"".join(ParquetEncoder(empty.schema, ParquetOptions(), {}).close())
    assert read(data).num_rows == 0
    assert read(data).column_names == empty.column_names


def test_each_write_is_one_row_group_and_the_footer_tells_them() -> None:
    table = spark_table()
    encoder = ParquetEncoder(table.schema, ParquetOptions(), {})
    for _ in range(3):
        encoder.write(table)
    encoder.close()
    assert (encoder.footer.row_groups, encoder.footer.rows) == (3, 300)


ROWS = 100_000
MIXED = pa.table(
    {
        "few": pa.array([f"value {index % 50}" for index in range(ROWS)]),
        "unique": pa.array([f"value {index}" for index in range(ROWS)]),
        "number": pa.array([index * 7919 for index in range(ROWS)], pa.int64()),
        "code": pa.array([index % 12 for index in range(ROWS)], pa.int64()),
        "flag": pa.array([index % 2 == 0 for index in range(ROWS)]),
        "price": pa.array([decimal.Decimal(index % 9) for index in range(ROWS)], pa.decimal128(20, 2)),
        "tags": pa.array([["a", "b"]] * ROWS, pa.list_(pa.string())),
        "null": pa.array([None] * ROWS, pa.string()),
    }
)


def test_columns_of_few_values_get_a_dictionary_and_others_do_not() -> None:
    encoder = ParquetEncoder(MIXED.schema, ParquetOptions(), {})
    encoder.write(MIXED)
    encoder.close()
    assert encoder.footer.dictionary_columns == ("few", "code", "price", "tags.list.element")


def test_dictionaries_can_be_asked_for_everywhere_or_nowhere() -> None:
    chosen = {}
    for wanted in (Dictionaries.DICTIONARIES_ALWAYS, Dictionaries.DICTIONARIES_NEVER):
        encoder = ParquetEncoder(MIXED.schema, ParquetOptions(dictionaries=wanted), {})
        encoder.write(MIXED)
        encoder.close()
        chosen[wanted] = len(encoder.footer.dictionary_columns)
    assert chosen == {Dictionaries.DICTIONARIES_ALWAYS: 8, Dictionaries.DICTIONARIES_NEVER: 0}


def test_sampled_dictionaries_make_no_larger_file_than_all_dictionaries() -> None:
    always = written(MIXED, dictionaries=Dictionaries.DICTIONARIES_ALWAYS)
    assert len(written(MIXED)) <= len(always)


def test_a_sample_of_no_rows_chooses_nothing() -> None:
    assert columns_worth_a_dictionary(pa.table({"a": pa.array([], pa.string())}), ["a"]) == []
