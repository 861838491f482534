# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from on_gpu.gpu_files import CPU, KEYS, encoder_for, leaves, read, written
from spark_like import UTC, spark_table

from updraft.v1.write_pb2 import Codec, Compression, Dictionaries, Encodings, ParquetOptions, Rebase, TimestampType
from updraft_writer.gpu.gpu import Gpu

MICROS, INT96 = TimestampType.TIMESTAMP_TYPE_MICROS, TimestampType.TIMESTAMP_TYPE_INT96
ANCIENT = [dt.date(1, 1, 1), dt.date(1582, 10, 4), None, dt.date(1582, 10, 15), dt.date(9999, 12, 31)]
FAR = [
    dt.datetime(year, 2, 3, 4, 5, 6, 789_012, tzinfo=dt.UTC) for year in (1, 1500, 1899, 1969, 1970, 2262, 2263, 9999)
]


def assert_equal(gpu: Gpu, options: ParquetOptions, *tables: pa.Table) -> bytes:
    ours, theirs = (written(where, options, *tables) for where in (gpu, CPU))
    assert read(ours).equals(read(theirs))
    assert leaves(ours) == leaves(theirs)
    assert pq.read_metadata(pa.BufferReader(ours)).metadata == pq.read_metadata(pa.BufferReader(theirs)).metadata
    return ours


def assert_equal_text(gpu: Gpu, options: ParquetOptions, *tables: pa.Table) -> bytes:
    """Compare like `assert_equal`, for columns with NaN, which is unequal to itself."""
    ours, theirs = (written(where, options, *tables) for where in (gpu, CPU))
    assert str(read(ours).to_pylist()) == str(read(theirs).to_pylist())
    return ours


@pytest.mark.parametrize("rebase", [Rebase.REBASE_CORRECTED, Rebase.REBASE_LEGACY])
@pytest.mark.parametrize("timestamps", TimestampType.values()[1:])
def test_every_type_that_spark_has_is_stored_as_on_the_cpu(gpu: Gpu, timestamps: TimestampType, rebase: Rebase) -> None:
    table = spark_table(10_000)
    options = ParquetOptions(timestamps=timestamps, rebase=rebase, int96_rebase=rebase, time_zone="UTC")
    assert_equal(gpu, options, table, table.slice(17, 1234))


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD", "LZ4"])
@pytest.mark.parametrize("dictionaries", Dictionaries.values()[1:])
def test_codecs_and_dictionaries(gpu: Gpu, codec: str, dictionaries: Dictionaries) -> None:
    options = ParquetOptions(compression=Compression(codec=f"CODEC_{codec}"), dictionaries=dictionaries)
    data = assert_equal(gpu, options, spark_table(50_000))
    shown = {"NONE": "UNCOMPRESSED"}.get(codec, codec)
    # A column of two values. The library makes no dictionary larger than the values that it replaces.
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(3)
    assert column.compression in (shown, "UNCOMPRESSED")
    if dictionaries != Dictionaries.DICTIONARIES_SAMPLED:
        assert column.has_dictionary_page == (dictionaries == Dictionaries.DICTIONARIES_ALWAYS)


def encodings_of(data: bytes) -> dict[str, set[str]]:
    columns = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    each = (columns.column(index) for index in range(columns.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in each}


def test_encodings_are_those_that_every_reader_has(gpu: Gpu) -> None:
    data = assert_equal(gpu, ParquetOptions(encodings=Encodings.ENCODINGS_COMPATIBLE), spark_table(50_000))
    found = set().union(*encodings_of(data).values())
    assert found <= {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"}


def test_compact_files_have_the_delta_encodings_of_the_cpu_s(gpu: Gpu) -> None:
    rows = 200_000
    numbers = pa.array(range(rows), pa.int64())
    names = pa.array([f"a name with a long common part {number:08}" for number in range(rows)])
    prices = pa.array([decimal.Decimal(number) for number in range(rows)], pa.decimal128(12, 0))
    columns = {
        "n": numbers,
        "s": names,
        "p": prices,
        "at": numbers.cast(UTC),
        "d": numbers.cast(pa.int32()).cast(pa.date32()),
    }
    options = ParquetOptions(encodings=Encodings.ENCODINGS_COMPACT, timestamps=MICROS)
    table = pa.table(columns)
    data = assert_equal(gpu, options, table, table.slice(17, 1234))
    ours, theirs = encodings_of(data), encodings_of(written(CPU, options, table))
    for path, encodings in theirs.items():
        assert {name for name in encodings if name.startswith("DELTA")} <= ours[path]
    assert len(data) <= 1.03 * len(written(CPU, options, table, table.slice(17, 1234)))


def test_a_codec_that_the_library_does_not_have_keeps_the_file_on_the_cpu(gpu: Gpu) -> None:
    options = ParquetOptions(compression=Compression(codec=Codec.CODEC_GZIP))
    encoder = encoder_for(gpu, spark_table(1).schema, options)
    table = spark_table(100)
    data = b"".join(encoder.write(table) + encoder.close())
    assert read(data).num_rows == 100


@pytest.mark.parametrize("timestamps", [INT96, MICROS])
def test_far_dates_and_times_are_not_cut(gpu: Gpu, timestamps: TimestampType) -> None:
    instants = pa.array([*FAR, None], UTC)
    table = pa.table(
        {"at": instants, "shown": instants.cast(pa.timestamp("us")), "on": pa.array([*ANCIENT, *ANCIENT[:4]])}
    )
    assert_equal(gpu, ParquetOptions(timestamps=timestamps), table)


@pytest.mark.parametrize("precision", [1, 9, 10, 18, 19, 38])
def test_decimals_of_each_width(gpu: Gpu, precision: int) -> None:
    nines = precision * "9"
    values = pa.array(
        [decimal.Decimal(digits) for digits in (nines, f"-{nines}", "0", "1")], pa.decimal128(precision, 0)
    )
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), values)
    assert_equal(gpu, ParquetOptions(), pa.table({"d": values, "scaled": values.cast(pa.decimal128(38, 0))}))
    assert_equal(gpu, ParquetOptions(), pa.table({"l": nested}))
    structs = pa.StructArray.from_arrays([nested, nested], names=["a", "b"], mask=pa.array([False, True]))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), structs)
    assert_equal(gpu, ParquetOptions(), pa.table({"s": structs, "m": maps}), pa.table({"s": structs, "m": maps}))


def nested_columns() -> dict[str, pa.Array]:
    hiding = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 4], pa.int32()), pa.array([1, 2, 3, 4]), mask=pa.array([True, False, False])
    )
    maps = pa.array([[("k", [b"\xff", None]), ("l", None)], None, []], pa.map_(pa.string(), pa.list_(pa.binary())))
    structs = pa.array(
        [{"m": [("k", {"x": 1})], "l": [[1], None, []]}, None, {"m": None, "l": None}],
        pa.struct({"m": pa.map_(pa.string(), pa.struct({"x": pa.int8()})), "l": pa.list_(pa.list_(pa.int16()))}),
    )
    lists = pa.array([[[("a", 1)], None], None, []], pa.list_(pa.map_(pa.string(), pa.int64())))
    below_null = pa.StructArray.from_arrays([hiding], names=["l"], mask=pa.array([False, True, False]))
    return {"hiding": hiding, "maps": maps, "structs": structs, "lists": lists, "below_null": below_null}


@pytest.mark.parametrize("name", nested_columns())
def test_nested_columns_and_slices_of_them(gpu: Gpu, name: str) -> None:
    column = nested_columns()[name]
    many = pa.concat_arrays([column] * 2000)
    assert_equal(gpu, ParquetOptions(), pa.table({"c": many}), pa.table({"c": many.slice(1, 4001)}))


EXTREMES = {
    "no text": pa.nulls(1000, pa.string()),
    "no lists": pa.nulls(1000, pa.list_(pa.int64())),
    "no times": pa.nulls(1000, UTC),
    "empty texts": pa.array([""] * 1000),
    "empty lists": pa.array([[]] * 1000, pa.list_(pa.string())),
    "long texts": pa.array(["x" * 100_000, None] * 50),
    "odd numbers": pa.array([float("nan"), -0.0, None, float("inf")] * 100),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_columns_of_nothing_and_of_much(gpu: Gpu, name: str) -> None:
    table = pa.table({"c": EXTREMES[name]})
    assert_equal_text(gpu, ParquetOptions(), table)


def test_columns_that_are_never_null(gpu: Gpu) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string(), nullable=False)])
    table = pa.table([pa.array(range(1000)), pa.array(map(str, range(1000)))], schema=schema)
    assert_equal(gpu, ParquetOptions(), table, table)


def statistics(data: bytes, column: int) -> Any:
    return pq.read_metadata(pa.BufferReader(data)).row_group(0).column(column).statistics


def test_statistics_are_those_of_the_cpu_and_can_be_switched_off(gpu: Gpu) -> None:
    table = spark_table(5000).select(["byte", "int", "long", "double", "small_decimal", "text", "date", "wall_clock"])
    ours, theirs = (written(where, ParquetOptions(), table) for where in (gpu, CPU))
    for column in range(table.num_columns):
        found, right = statistics(ours, column), statistics(theirs, column)
        assert (found.min, found.max, found.null_count) == (right.min, right.max, right.null_count)
    without = written(gpu, ParquetOptions(statistics=False), table)
    assert statistics(without, 2) is None or not statistics(without, 2).has_min_max


def test_a_chunk_with_nan_has_no_bounds(gpu: Gpu) -> None:
    nan = float("nan")
    tables = [
        pa.table({"d": [1.0, end] * 1000, "l": [[1.0, end]] * 2000, "e": pa.array([1.0, 2.0] * 1000, pa.float32())})
        for end in (2.0, nan)
    ]
    data = assert_equal_text(gpu, ParquetOptions(page_index=True), *tables)
    chunks = [
        [pq.read_metadata(pa.BufferReader(data)).row_group(group).column(column) for column in range(3)]
        for group in range(2)
    ]
    assert [[chunk.statistics.has_min_max for chunk in group] for group in chunks] == [[True] * 3, [False, False, True]]
    assert [[chunk.has_column_index for chunk in group] for group in chunks] == [[True] * 3, [False, False, True]]
    assert all(chunk.statistics.null_count == 0 and chunk.has_offset_index for group in chunks for chunk in group)


def test_a_page_index_is_there_when_asked_for_and_pages_are_as_small(gpu: Gpu) -> None:
    table = pa.table({"n": pa.array(range(200_000))})
    for asked in (False, True):
        data = assert_equal(gpu, ParquetOptions(page_index=asked, page_bytes=4096), table)
        column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
        assert (column.has_offset_index, column.has_column_index) == (asked, asked)


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD", "LZ4"])
@pytest.mark.parametrize("page_index", [False, True])
def test_pages_have_the_checksums_that_spark_asks_for(gpu: Gpu, codec: str, page_index: bool) -> None:
    table = spark_table(50_000)
    compression = Compression(codec=f"CODEC_{codec}")
    options = ParquetOptions(page_checksums=True, page_index=page_index, compression=compression)
    data = assert_equal(gpu, options, table, table.slice(17, 1234))
    verified = pq.read_table(pa.BufferReader(data), page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    assert verified.equals(read(data))


def test_each_write_is_one_row_group_however_many_rows_it_has(gpu: Gpu) -> None:
    table = pa.table({"n": pa.array(range(3_000_000))})
    encoder = encoder_for(gpu, table.schema, ParquetOptions())
    for _ in range(2):
        encoder.write(table)
    encoder.close()
    assert (encoder.footer.row_groups, encoder.footer.rows) == (2, 6_000_000)


def test_a_large_write_is_cut_into_row_groups_where_the_client_wants_it(gpu: Gpu) -> None:
    table = pa.table({"n": pa.array(range(8_000_000)), "s": pa.array(map(str, range(8_000_000)))})
    options = ParquetOptions(row_group_bytes=64 << 20)
    encoder = encoder_for(gpu, table.schema, options)
    pieces = encoder.write(table.slice(0, 1_000_000))
    data = b"".join([*pieces, *encoder.write(table.slice(1_000_000)), *encoder.close()])
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    # 72 MiB have room for about four million of these rows.
    assert (groups[0], len(groups)) == (1_000_000, 3)
    assert 3_500_000 < max(groups) < 4_500_000
    assert read(data).equals(table)


def test_the_footer_has_spark_s_keys(gpu: Gpu) -> None:
    data = written(gpu, ParquetOptions(), spark_table(10))
    stored = pq.read_metadata(pa.BufferReader(data)).metadata
    assert {key.decode(): value.decode() for key, value in stored.items()} == KEYS
