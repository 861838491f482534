# SPDX-License-Identifier: Apache-2.0
"""Files of the encoders compared with Spark's own of the same rows: equal in Spark, in pyarrow and in the footer."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from spark_oracle import SESSION_ZONE, call, confs, everything

from updraft.errors import EncodeError
from updraft.v1.write_pb2 import BloomFilter, Encodings, OrcOptions, ParquetOptions
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.encoders.timestamps import hybrid_dates

COMPACT = Encodings.ENCODINGS_COMPACT
TIMESTAMP_TYPES = ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")
TYPE_CONF = "spark.sql.parquet.outputTimestampType"
REBASE_CONFS = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
VERSION = "org.apache.spark.version"


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return rows as Spark passes them to Arrow; `toArrow` itself fails on non-nullable fields inside nullable ones."""
    return pa.Table.from_batches(frame._collect_as_arrow())


def write_parquet(frame: DataFrame, path: Path, options: ParquetOptions) -> None:
    table = to_arrow(frame)
    footer = {VERSION: frame.sparkSession.version, ROW_METADATA: frame._jdf.schema().json()}
    encoder = ParquetEncoder(table.schema, options, footer)
    rows = options.row_group_rows or table.num_rows
    pieces = [piece for start in range(0, table.num_rows, rows) for piece in encoder.write(table.slice(start, rows))]
    path.mkdir()
    (path / "part-0.parquet").write_bytes(b"".join(pieces + encoder.close()))


def write_orc(frame: DataFrame, path: Path, options: OrcOptions) -> None:
    table = to_arrow(frame)
    footer = {VERSION: frame.sparkSession.version}
    encoder = OrcEncoder(table.schema, options, footer, max_stripe_bytes=1 << 26)
    path.mkdir()
    (path / "part-0.orc").write_bytes(b"".join(encoder.write(table) + encoder.close()))


def part(path: Path) -> Path:
    [found] = path.glob("part-*")
    return found


def parquet_options(timestamps: str, rebase: str, zone: str = SESSION_ZONE) -> ParquetOptions:
    mode = f"REBASE_{rebase}"
    kind = f"TIMESTAMP_TYPE_{timestamps.removeprefix('TIMESTAMP_')}"
    return ParquetOptions(timestamps=kind, rebase=mode, int96_rebase=mode, time_zone=zone, encodings=COMPACT)


def leaves(path: Path) -> list[tuple[Any, ...]]:
    """Return the footer's description of each column."""
    columns = pq.read_metadata(part(path)).schema
    return [
        (
            column.path,
            column.physical_type,
            column.length,
            str(column.logical_type),
            str(column.converted_type),
            column.max_definition_level,
            column.max_repetition_level,
        )
        for column in (columns.column(index) for index in range(len(columns)))
    ]


def stored_parquet(path: Path) -> pa.Table:
    return pq.read_table(part(path), coerce_int96_timestamp_unit="us")


@pytest.mark.parametrize(("rebase", "zone"), [("CORRECTED", SESSION_ZONE), ("LEGACY", "UTC")])
@pytest.mark.parametrize("timestamps", TIMESTAMP_TYPES)
def test_a_parquet_file_is_what_spark_would_have_written(
    spark: SparkSession, tmp_path: Path, timestamps: str, rebase: str, zone: str
) -> None:
    ours, theirs, frame = tmp_path / "ours", tmp_path / "theirs", everything(spark)
    write_parquet(frame, ours, parquet_options(timestamps, rebase, zone))
    changes = {TYPE_CONF: timestamps, "spark.sql.session.timeZone": zone, **dict.fromkeys(REBASE_CONFS, rebase)}
    with confs(spark, changes):
        frame.write.parquet(str(theirs))
    read = spark.read.parquet(str(ours))
    assert read.schema == spark.read.parquet(str(theirs)).schema
    assert read.toArrow().equals(spark.read.parquet(str(theirs)).toArrow())
    # Spark does not write these encodings itself, so both of its readers must be tested.
    with confs(spark, {"spark.sql.parquet.enableVectorizedReader": "false"}):
        assert read.toArrow().equals(spark.read.parquet(str(theirs)).toArrow())
    assert stored_parquet(ours).equals(stored_parquet(theirs))
    assert leaves(ours) == leaves(theirs)
    assert pq.read_metadata(part(ours)).metadata == pq.read_metadata(part(theirs)).metadata


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_both_readers_of_spark_know_every_encoding(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    # The encoder tries encodings only if there are many rows.
    frame = spark.range(40_000).selectExpr(
        "id",
        "if(id % 7 = 0, NULL, concat('customer#', cast(id * 7919 % 1000003 as string))) AS name",
        "array(concat('a common beginning ', cast(id as string)), NULL, '') AS names",
        "cast(id * 31 % 12 as int) AS code",
        "id * 7919 % 100 / 8 AS price",
    )
    write_parquet(frame, tmp_path / "ours", ParquetOptions(page_bytes=20_000, encodings=COMPACT))
    columns = pq.read_metadata(part(tmp_path / "ours")).row_group(0)
    encodings = {name for index in range(columns.num_columns) for name in columns.column(index).encodings}
    assert encodings == {"RLE", "PLAIN", "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY"}
    with confs(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        read = spark.read.parquet(str(tmp_path / "ours"))
        assert read.toArrow().columns == frame.toArrow().columns
        wanted = "name = 'customer#63352'"
        assert read.where(wanted).collect() == frame.where(wanted).collect() != []


@pytest.mark.parametrize("timestamps", TIMESTAMP_TYPES)
def test_a_file_of_dates_that_need_no_rebase_passes_the_mode_exception_and_others_do_not(
    spark: SparkSession, tmp_path: Path, timestamps: str
) -> None:
    options = parquet_options(timestamps, "EXCEPTION")
    write_parquet(everything(spark, since="1901-01-01"), tmp_path / "new", options)
    assert spark.read.parquet(str(tmp_path / "new")).count() == everything(spark, since="1901-01-01").count()
    with pytest.raises(EncodeError, match="RebaseModeInWrite"):
        write_parquet(everything(spark, since="1850-01-01"), tmp_path / "old", options)


@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_filters_of_spark_find_in_a_parquet_file_what_they_should(
    spark: SparkSession, tmp_path: Path, timestamps: str
) -> None:
    options = parquet_options(timestamps, "CORRECTED")
    options.MergeFrom(
        ParquetOptions(
            row_group_rows=300,
            page_bytes=256,
            page_index=True,
            bloom_filters=[BloomFilter(column="long", distinct_values=300), BloomFilter(column="text")],
        )
    )
    frame = everything(spark)
    write_parquet(frame, tmp_path / "ours", options)
    written = spark.read.parquet(str(tmp_path / "ours"))
    for wanted in (
        "long = -1700000011900",
        "text = 'řádek 17' AND id > 1900",
        "text = 'nobody'",
        "date = DATE'1501-05-18'",
        "wall_clock < TIMESTAMP_NTZ'0100-01-01 00:00:00'",
        "wall_clock BETWEEN TIMESTAMP_NTZ'1969-01-01 00:00:00' AND TIMESTAMP_NTZ'1971-01-01 00:00:00'",
        "instant > TIMESTAMP'2150-01-01 00:00:00'",
        "large_decimal > 285 AND small_decimal IS NOT NULL",
        "struct.shown IS NULL AND flag",
    ):
        found, there = (rows.where(wanted).select("id").collect() for rows in (written, frame))
        assert found == there, wanted
        assert bool(found) == (wanted != "text = 'nobody'")


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_an_orc_file_is_what_spark_would_have_written(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    ours, theirs, frame = tmp_path / "ours", tmp_path / "theirs", everything(spark, instant_type="timestamp_ntz")
    write_orc(frame, ours, OrcOptions())
    frame.write.orc(str(theirs))
    with confs(spark, {"spark.sql.orc.enableVectorizedReader": vectorized}):
        read = spark.read.orc(str(ours))
        assert read.schema == spark.read.orc(str(theirs)).schema
        assert read.toArrow().equals(spark.read.orc(str(theirs)).toArrow())
        assert read.collect() == frame.collect()
    assert [footer_of_orc(spark, path) for path in (ours, theirs)] == [
        {"version": spark.version, "proleptic": False}
    ] * 2


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_still_rejects_the_orc_timestamps_of_the_library(
    spark: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    # The reason why a schema with timestamps is refused. If this fails, the library may be able to write them.
    orc.write_table(pa.table({"t": pa.array([-1_500_000], pa.timestamp("us"))}), tmp_path / "part-0.orc")
    reader = {"spark.sql.orc.enableVectorizedReader": vectorized}
    with confs(spark, reader), pytest.raises(Exception, match="nanos > 999999999 or < 0"):
        spark.read.orc(str(tmp_path)).collect()


def footer_of_orc(spark: SparkSession, path: Path) -> dict[str, Any]:
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    options = call(spark, "org.apache.orc.OrcFile").readerOptions(configuration)
    reader = call(spark, "org.apache.orc.OrcFile").createReader(
        call(spark, "org.apache.hadoop.fs.Path")(str(part(path))), options
    )
    version = call(spark, "java.nio.charset.StandardCharsets").UTF_8.decode(reader.getMetadataValue(VERSION))
    return {"version": str(version.toString()), "proleptic": reader.writerUsedProlepticGregorian()}


@pytest.mark.parametrize("reader", ["true", "false"])
def test_filters_of_spark_find_in_an_orc_file_what_they_should(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    frame = everything(spark, instant_type="timestamp_ntz")
    write_orc(frame, tmp_path / "ours", OrcOptions(row_index_stride=1000))
    with confs(spark, {"spark.sql.orc.enableVectorizedReader": reader}):
        for wanted in (
            "date = DATE'1501-05-18'",
            "date < DATE'0100-01-01'",
            "wall_clock < TIMESTAMP_NTZ'0100-01-01 00:00:00'",
            "wall_clock BETWEEN TIMESTAMP_NTZ'1969-01-01 00:00:00' AND TIMESTAMP_NTZ'1971-01-01 00:00:00'",
            "instant > TIMESTAMP_NTZ'2030-01-01 00:00:00'",
        ):
            found = spark.read.orc(str(tmp_path / "ours")).where(wanted).collect()
            assert found == frame.where(wanted).collect()
            assert found, wanted


def test_dates_are_rebased_as_spark_does(spark: SparkSession) -> None:
    rebased = call(spark, "org.apache.spark.sql.catalyst.util.RebaseDateTime").rebaseGregorianToJulianDays
    days = [*range(-1_000_000, -141_500, 5000), *range(-141_440, -141_420), -719_163, -719_162, 0]
    got = hybrid_dates(pa.array(days, pa.int32()).cast(pa.date32())).cast(pa.int32()).to_pylist()
    assert got == [rebased(day) for day in days]
