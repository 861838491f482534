# SPDX-License-Identifier: Apache-2.0
"""Spark's options by Spark's names: codecs, row groups, calendars; unsupported ones stay with Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.driver_log import driver_log
from tests.e2e.writer.conftest import DELIVERY, UNSUPPORTED
from tests.e2e.writer.written import FAILURES, both, write
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import runtime_confs

_DATES = "spark.sql.parquet.datetimeRebaseModeInWrite"
_INT96 = "spark.sql.parquet.int96RebaseModeInWrite"


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4_raw"])
def test_a_codec_names_the_file_and_packs_it(spark: SparkSession, place: Path, codec: str) -> None:
    stock, ours = both(spark.range(1000).coalesce(1), place, compression=codec)
    assert ours.layout() == stock.layout()
    packed = [pq.read_metadata(written.files()[0]).row_group(0).column(0).compression for written in (stock, ours)]
    assert packed[0].removesuffix("_RAW") == packed[1].removesuffix("_RAW")
    assert ours.rows(spark) == stock.rows(spark)


@pytest.mark.parametrize("codec", ["none", "snappy", "zlib", "zstd", "lz4"])
def test_an_orc_codec_names_the_file(spark: SparkSession, place: Path, codec: str) -> None:
    stock, ours = both(spark.range(1000).coalesce(1), place, "updraft-orc", compression=codec)
    assert ours.layout() == stock.layout()
    assert ours.rows(spark) == stock.rows(spark)


def test_parquets_own_options_are_followed(spark: SparkSession, place: Path) -> None:
    options = {
        "parquet.block.size": str(1 << 20),
        "parquet.enable.dictionary": "false",
        "parquet.bloom.filter.enabled#id": "true",
        "parquet.bloom.filter.expected.ndv#id": "1000",
    }
    written = write(spark.range(0, 300_000, 1, 1), place / "ours", "updraft-parquet", **options)
    metadata = pq.read_metadata(written.files()[0])
    assert metadata.num_row_groups > 1
    column = metadata.row_group(0).column(0)
    assert column.dictionary_page_offset is None
    assert column.statistics.has_min_max
    assert column.has_column_index
    stock, _ = both(spark.range(10), place)
    assert written.columns() == stock.columns()


@pytest.mark.parametrize("asynchronous", ["true", "false"])
def test_the_pace_changes_no_row(spark: SparkSession, place: Path, asynchronous: str) -> None:
    confs = {"spark.updraft.write.asynchronous": asynchronous, "spark.updraft.write.batchBytes": "64k"}
    frame = spark.range(0, 60_000, 1, 2).select("id", F.repeat("id", 3).alias("text"))
    with runtime_confs(spark, confs):
        stock, ours = both(frame, place)
    assert ours.rows(spark) == stock.rows(spark)
    if asynchronous == "false":
        assert pq.read_metadata(ours.files()[0]).num_row_groups > 3


def test_old_dates_are_an_error_where_spark_makes_them_one(spark: SparkSession, place: Path) -> None:
    old = spark.sql("select date'1500-01-01' as d")
    with runtime_confs(spark, {_DATES: "EXCEPTION"}), pytest.raises(FAILURES, match="1582-10-15"):
        write(old, place / "refused", "updraft-parquet")
    assert not list((place / "refused").rglob("part-*"))
    for mode in ("CORRECTED", "LEGACY"):
        with runtime_confs(spark, {_DATES: mode}):
            stock, ours = both(old, place / mode)
        assert ours.footer() == stock.footer()
        assert ours.rows(spark) == stock.rows(spark)


_FOREIGN = {
    "a zone of the legacy calendar": ("timestamp'1500-01-01 00:00:00' t", {_INT96: "LEGACY"}),
    "legacy format": ("1.5 d", {"spark.sql.parquet.writeLegacyFormat": "true"}),
    "variant": ("parse_json('1') v", {}),
    "writer version": ("1 i", {"parquet.writer.version": "PARQUET_2_0"}),
}


_REASONS = {
    "a zone of the legacy calendar": "timestamps in rebase mode LEGACY in the time zone America/Los_Angeles",
    "legacy format": "spark.sql.parquet.writeLegacyFormat = true",
    "variant": "the type VARIANT",
    "writer version": "parquet.writer.version = PARQUET_2_0",
}


@pytest.mark.parametrize("case", _FOREIGN)
def test_what_the_writer_lacks_is_left_to_spark_with_the_reason_or_refused(
    spark: SparkSession, place: Path, tmp_path: Path, case: str
) -> None:
    if case == "variant":
        needs_spark((4, 0), "variant type")
    columns, confs = _FOREIGN[case]
    frame = spark.sql(f"select {columns}")
    with runtime_confs(spark, confs):
        with pytest.raises(FAILURES, match=r"write\.unsupported = local"):
            write(frame, place / "refused", "updraft-parquet")
        with runtime_confs(spark, {UNSUPPORTED: "local"}), driver_log(spark, tmp_path / "log") as log:
            stock, ours = both(frame, place)
        assert f"Spark's own writer makes these files, because of {_REASONS[case]}" in log.read_text()
        assert all(creator.startswith("parquet-mr") for creator in ours.created_by())
        assert ours.rows(spark) == stock.rows(spark)


def test_settings_are_options_of_a_single_write_too(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    with runtime_confs(spark, {DELIVERY: "direct"}):
        # Outside the writer's roots, only returned bytes can be written.
        written = write(spark.range(5), tmp_path / "returned", "updraft-parquet", **{DELIVERY: "return"})
        with pytest.raises(FAILURES, match=r'spark\.updraft\.write\.delivery = "post": expected direct or return'):
            write(spark.range(5), place / "refused", "updraft-parquet", **{DELIVERY: "post"})
    assert len(written.rows(spark)) == 5


def test_a_misspelt_option_is_told_once_with_the_nearest_name(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    misspelt = {"spark.updraft.write.delivry": "return"}
    with driver_log(spark, tmp_path / "log") as log:
        for name in ("first", "second"):
            write(spark.range(1), place / name, "updraft-parquet", **misspelt)
    told = "spark.updraft.write.delivry is not an option of a write and has no effect"
    assert log.read_text().count(f"{told}; did you mean spark.updraft.write.delivery?") == 1
