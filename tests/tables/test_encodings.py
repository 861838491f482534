# SPDX-License-Identifier: Apache-2.0
"""Files with each choice of encodings, read by Spark, Delta and Iceberg, with vectorised readers and row by row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter

# The encoder tries encodings for strings only in row groups of about this size or more.
_ROWS = 80_000
_COLUMNS = (
    "id",
    "if(id % 3 = 0, NULL, cast(id AS int)) AS some",
    "cast(NULL AS bigint) AS no_number",
    "cast(NULL AS string) AS no_text",
    "cast(id * 31 % 12 AS int) AS code",
    "id % 2 = 0 AS flag",
    "id * 7919 % 100 / 8 AS price",
    "cast(id / 100 AS decimal(9, 2)) AS small_decimal",
    "cast(id AS decimal(30, 2)) AS large_decimal",
    "date_add(DATE'2026-01-01', cast(id % 9000 AS int)) AS day",
    "timestamp_micros(1767225600000000 + id * 1001) AS at",
    "concat('word ', id % 50) AS word",
    "if(id % 7 = 0, NULL, concat('a common beginning ', lpad(id, 9, '0'))) AS name",
    "array(id, NULL, -id) AS list",
    "named_struct('text', concat('a common beginning ', lpad(id, 9, '0'))) AS inner",
)
_VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
_DELTA_ENCODINGS = {"DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY"}


@dataclass(frozen=True)
class Files:
    """Directory of files that the writer has made with `encodings`, and a summary of Spark's own files."""

    encodings: str
    directory: Path
    wanted: Any


@pytest.fixture(scope="module", params=["compatible", "compact"])
def parquet(
    spark: SparkSession, writer: LocalWriter, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Files:
    root: Path = tmp_path_factory.mktemp(request.param)
    frame = spark.range(0, _ROWS, 1, 1).selectExpr(*_COLUMNS)
    frame.write.parquet(str(root / "wanted"))
    options = {"endpoint": writer.tcp_endpoint, "encodings": request.param, "unsupported": "fail"}
    confs = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    with runtime_confs(spark, confs):
        write = frame.write.format("updraft-parquet")
        write.options(**{f"spark.updraft.write.{name}": value for name, value in options.items()}).save(
            str(root / "files")
        )
    return Files(request.param, root / "files", _summary(spark.read.parquet(str(root / "wanted"))))


def _summary(frame: DataFrame) -> Any:
    """Return the schema, the number of rows, and a sum of the hashes of all rows."""
    # Hash the nulls separately: xxhash64 ignores nulls, so it would not distinguish (1, null) from (null, 1).
    nulls = ["list[1]", "list[2]", "inner.text", *frame.columns]
    hashed = f"xxhash64({', '.join(frame.columns)}, {', '.join(f'isnull({column})' for column in nulls)}, size(list))"
    counted = frame.selectExpr("count(*)", f"sum(cast({hashed} AS decimal(38, 0)))").first()
    return [(field.name, field.dataType) for field in frame.schema], counted


def _assert_same_rows(spark: SparkSession, parquet: Files, read: str) -> None:
    found = _summary(spark.sql(f"SELECT * FROM {read}"))
    assert found == parquet.wanted
    assert found[1][0] == _ROWS


def test_the_option_chooses_the_encodings(parquet: Files) -> None:
    [file] = parquet.directory.glob("*.parquet")
    row_group = pq.read_metadata(file).row_group(0)
    found = {name for index in range(row_group.num_columns) for name in row_group.column(index).encodings}
    assert found & _DELTA_ENCODINGS == (_DELTA_ENCODINGS if parquet.encodings == "compact" else set())


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_the_files(spark: SparkSession, parquet: Files, vectorized: str) -> None:
    with runtime_confs(spark, {_VECTORIZED: vectorized}):
        _assert_same_rows(spark, parquet, f"parquet.`{parquet.directory}`")


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_delta_reads_the_files(spark: SparkSession, parquet: Files, vectorized: str) -> None:
    spark.sql(f"CONVERT TO DELTA parquet.`{parquet.directory}`")
    with runtime_confs(spark, {_VECTORIZED: vectorized}):
        _assert_same_rows(spark, parquet, f"delta.`{parquet.directory}`")


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_iceberg_reads_the_files(spark: SparkSession, parquet: Files, vectorized: str) -> None:
    table = f"iceberg.encodings.{parquet.encodings}_{vectorized}"
    no_rows = spark.createDataFrame([], spark.read.parquet(str(parquet.directory)).schema)
    no_rows.writeTo(table).tableProperty("read.parquet.vectorization.enabled", vectorized).create()
    spark.sql(f"CALL iceberg.system.add_files(table => '{table}', source_table => '`parquet`.`{parquet.directory}`')")
    _assert_same_rows(spark, parquet, table)
