# SPDX-License-Identifier: Apache-2.0
"""Writes while the writer is away: an error, or files of Spark's own writer if the session prefers those."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.driver_log import driver_log
from tests.e2e.writer.conftest import ENDPOINT
from tests.e2e.writer.written import FAILURES, Written
from tests.support.spark import runtime_confs

_AWAY = {
    ENDPOINT: "grpc://127.0.0.1:1",
    "spark.updraft.write.connectTimeout": "200ms",
    "spark.updraft.write.acquireTimeout": "1s",
}
_FALLBACK = {**_AWAY, "spark.updraft.write.fallback": "local"}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("format_name", ["updraft-parquet", "updraft-orc"])
def test_sparks_own_writer_makes_the_files_and_the_log_says_why(
    spark: SparkSession, place: Path, tmp_path: Path, format_name: str, mode: str
) -> None:
    path = str(place / "files")
    with runtime_confs(spark, _FALLBACK), driver_log(spark, tmp_path / "log") as log:
        for _ in range(2):
            spark.range(0, 10, 1, 1).write.format(format_name).mode(mode).save(path)
    assert spark.read.format(format_name).load(path).count() == (10 if mode == "overwrite" else 20)
    assert f"{format_name}: Spark's own writer makes these files, because of " in log.read_text()
    assert "127.0.0.1:1" in log.read_text()


def test_a_table_is_replaced_by_sparks_own_writer_too(spark: SparkSession, place: Path) -> None:
    with runtime_confs(spark, _FALLBACK):
        for count in (5, 10):
            frame = spark.range(0, count, 1, 1).write.format("updraft-parquet").mode("overwrite")
            frame.option("path", str(place / "files")).saveAsTable("away")
    assert spark.table("away").count() == 10
    spark.sql("DROP TABLE away")


def test_a_writer_that_is_there_is_used(spark: SparkSession, place: Path) -> None:
    with runtime_confs(spark, {"spark.updraft.write.fallback": "local"}):
        spark.range(0, 10, 1, 1).write.format("updraft-parquet").save(str(place / "files"))
    assert all(maker.startswith("parquet-cpp") for maker in Written(place / "files").created_by())


def test_by_default_the_write_fails(spark: SparkSession, place: Path) -> None:
    with runtime_confs(spark, _AWAY), pytest.raises(FAILURES, match=r"127\.0\.0\.1:1"):
        spark.range(0, 10, 1, 1).write.format("updraft-parquet").save(str(place / "files"))
