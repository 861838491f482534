# SPDX-License-Identifier: Apache-2.0
"""Sessions without Delta that send Delta's data files through a writer: everything else runs, and the log says why."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.e2e.driver_log import driver_log
from tests.e2e.writer.written import Written
from tests.support.spark import runtime_confs


def test_a_session_without_delta_runs_queries_and_writes_files(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    with runtime_confs(spark, {"spark.updraft.write.tables": "delta"}), driver_log(spark, tmp_path / "log") as log:
        assert spark.range(0, 10, 1, 1).count() == 10
        spark.range(0, 10, 1, 1).write.format("updraft-parquet").save(str(place / "files"))
    assert all(maker.startswith("parquet-cpp") for maker in Written(place / "files").created_by())
    assert (
        log.read_text().count("Delta's own writer makes data files, because of java.lang.ClassNotFoundException") == 1
    )
