# SPDX-License-Identifier: Apache-2.0
"""Timestamps in ORC: Spark chooses the writer before the first row, and reads the same as from its own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.writer.conftest import UNSUPPORTED
from tests.e2e.writer.written import FAILURES, Written, both, rows, write
from tests.support.spark import runtime_confs

# Three groups of rows in each of two files, with an index each. Rows with hard values are in the second group alone.
_ROWS = 60_000
_HARD_ROWS = "between 12000 and 17000"
# Several batches a file, and the first ones have no hard value.
_BATCH_BYTES = "256k"
_SECOND = 1_000_000
_FILTERS = [
    "at < {0}'1582-10-16 00:00:00' OR at > {0}'9000-01-01 00:00:00'",
    "at = {0}'1969-12-31 23:59:58.5'",
    "at BETWEEN {0}'1969-12-31 23:59:57.000001' AND {0}'1969-12-31 23:59:58.999'",
    "at > {0}'1969-12-31 23:59:59.001' AND at < {0}'1970-01-01 00:00:01'",
]
# Values around the seconds before 1970, where fractions are hard, and at both ends of Spark's range.
_HARD_MICROS = [
    -62_135_596_800 * _SECOND,
    -62_135_596_800 * _SECOND + 1,
    -12_219_292_800 * _SECOND - 1,
    -12_219_292_800 * _SECOND + 1,
    *(second * _SECOND + part for second in (-3, -2, -1, 0) for part in (0, 1, 999, 1000, 1001, 500_000, 999_999)),
    253_402_300_800 * _SECOND - 1,
]


def _with_hard_values(spark: SparkSession, kind: str) -> DataFrame:
    """Return whole seconds since 2001, with hard values in the middle of each partition."""
    hard = f"element_at(array({', '.join(f'{micros}L' for micros in _HARD_MICROS)}), int(id % {len(_HARD_MICROS)}) + 1)"
    micros = f"if(id % {_ROWS // 2} {_HARD_ROWS}, {hard}, 1000000000000000 + id * {_SECOND})"
    when = f"cast(timestamp_micros(if(id % 11 = 0, NULL, {micros})) as {kind})"
    columns = spark.range(0, _ROWS, 1, 2).selectExpr("id", f"{when} AS at")
    return columns.selectExpr(
        "id",
        "at",
        "if(id % 7 = 0, NULL, named_struct('at', at)) AS struct",
        "array(at, NULL) AS list",
        "map(id, at) AS map",
    )


def _rows_of(spark: SparkSession, written: Written) -> Any:
    """Return the schema, the number of rows, and a sum of the hashes of all rows."""
    read = spark.read.orc(str(written.path))
    hashed = F.xxhash64("id", "at", "struct", "list", F.map_entries("map")).cast("decimal(38, 0)")
    ends = (F.min("at").cast("string"), F.max("at").cast("string"))
    return read.schema, read.agg(F.count("*"), F.sum(hashed), *ends).first()


def _ids_where(spark: SparkSession, written: Written, condition: str) -> list[int]:
    return sorted(row.id for row in spark.read.orc(str(written.path)).where(condition).select("id").collect())


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_before_1970_among_many_others_read_as_in_sparks_own_file(
    spark: SparkSession, place: Path, kind: str
) -> None:
    # Also the JVM's zone, so that a filter names the second that was written.
    confs = {"spark.sql.session.timeZone": "UTC", "spark.sql.orc.filterPushdown": "true"}
    confs[UNSUPPORTED] = "local" if kind == "timestamp" else "fail"
    confs["spark.updraft.write.batchBytes"] = _BATCH_BYTES
    with runtime_confs(spark, confs):
        stock, ours = both(_with_hard_values(spark, kind), place, "updraft-orc")
        assert ours.layout() == stock.layout()
        for vectorized in ("true", "false"):
            with runtime_confs(spark, {"spark.sql.orc.enableVectorizedReader": vectorized}):
                assert _rows_of(spark, ours) == _rows_of(spark, stock)
                for wanted in _FILTERS:
                    condition = wanted.format(kind.upper())
                    found = _ids_where(spark, ours, condition)
                    assert found == _ids_where(spark, stock, condition) != [], condition


@pytest.mark.parametrize("column", ["at", "array(at)", "map(1, at)", "map(at, 1)", "named_struct('s', struct(at))"])
def test_timestamps_in_orc_are_refused_before_any_task_where_spark_may_not_write_them(
    spark: SparkSession, place: Path, column: str
) -> None:
    frame = spark.range(1).selectExpr("timestamp_micros(if(id < 0, id, raise_error('a task has run'))) AS at")
    frame = frame.selectExpr(f"{column} AS c")
    with pytest.raises(FAILURES, match=r"the type TIMESTAMP in ORC .*write\.unsupported = local"):
        write(frame, place / "refused", "updraft-orc")
    with runtime_confs(spark, {UNSUPPORTED: "local"}), pytest.raises(FAILURES, match="a task has run"):
        write(frame, place / "left to Spark", "updraft-orc")


def test_a_scan_with_timestamps_reaches_sparks_own_orc_writer(spark: SparkSession, place: Path) -> None:
    micros = ", ".join(f"({micros}L)" for micros in _HARD_MICROS)
    spark.sql(f"SELECT timestamp_micros(col1) AS at FROM VALUES {micros}, (NULL)").write.parquet(str(place / "scanned"))
    with runtime_confs(spark, {UNSUPPORTED: "local"}):
        stock, ours = both(spark.read.parquet(str(place / "scanned")), place, "updraft-orc")
    # Python has no year 0, to which a time zone may move the first of these.
    read = [rows(spark.read.orc(str(written.path)).select(F.col("at").cast("string"))) for written in (ours, stock)]
    assert read[0] == read[1]
    assert len(read[0]) == len(_HARD_MICROS) + 1
