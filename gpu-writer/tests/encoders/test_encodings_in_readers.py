# SPDX-License-Identifier: Apache-2.0
"""Both choices of encodings, read by pyarrow, DuckDB, polars and the two readers of Spark."""

import datetime as dt
import decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import written
from pyspark.sql import SparkSession
from spark_oracle import confs

from updraft.v1.write_pb2 import Encodings, TimestampType

_COMPATIBLE = {"PLAIN", "RLE", "RLE_DICTIONARY"}
# The encoder tries encodings of texts only in row groups of about this size.
_ROW_GROUP_ROWS = 40_000
_ROWS = 2 * _ROW_GROUP_ROWS
_DAY, _TIME = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)


def _table() -> pa.Table:
    rows = range(_ROWS)
    columns = {
        "id": pa.array(rows, pa.int64()),
        "some": pa.array([None if row % 3 == 0 else row for row in rows], pa.int32()),
        "none": pa.nulls(_ROWS, pa.int64()),
        "no_text": pa.nulls(_ROWS, pa.string()),
        "code": pa.array([row * 31 % 12 for row in rows], pa.int32()),
        "flag": pa.array([row % 2 == 0 for row in rows]),
        "price": pa.array([row * 7919 % 100 / 8 for row in rows]),
        "decimal": pa.array([decimal.Decimal(row) / 100 for row in rows], pa.decimal128(9, 2)),
        "day": pa.array([_DAY + dt.timedelta(days=row % 9000) for row in rows]),
        "at": pa.array([_TIME + dt.timedelta(microseconds=row * 1001) for row in rows], pa.timestamp("us")),
        "word": pa.array([f"word {row % 50}" for row in rows]),
        "name": pa.array([None if row % 7 == 0 else f"customer#{row * 7919 % 1000003}" for row in rows]),
        "bytes": pa.array([f"a common beginning {row:09}".encode() for row in rows]),
        "list": pa.array([[row, None, -row] for row in rows], pa.list_(pa.int64())),
        "struct": pa.array([{"text": f"a common beginning {row:09}"} for row in rows]),
    }
    return pa.table(columns)


TABLE = _table()


@pytest.fixture(scope="module", params=["COMPATIBLE", "COMPACT"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp(request.param) / "part-0.parquet"
    path.write_bytes(
        written(
            TABLE.slice(0, _ROW_GROUP_ROWS),
            TABLE.slice(_ROW_GROUP_ROWS),
            encodings=Encodings.Value(f"ENCODINGS_{request.param}"),
            timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
            page_bytes=20_000,
            page_index=True,
        )
    )
    return path


def test_the_footer_names_the_encodings_that_were_asked_for(file: Path) -> None:
    metadata = pq.read_metadata(file)
    columns = [
        metadata.row_group(group).column(index)
        for group in range(metadata.num_row_groups)
        for index in range(metadata.num_columns)
    ]
    found = {encoding for column in columns for encoding in column.encodings}
    compact = {"DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY"} if "COMPACT" in file.parent.name else set()
    assert found == _COMPATIBLE | compact


def test_pyarrow_reads_every_encoding(file: Path) -> None:
    assert pq.read_table(file).equals(TABLE)


def test_duckdb_reads_every_encoding(file: Path) -> None:
    with duckdb.connect() as connection:
        read = connection.sql(f"FROM read_parquet('{file}') ORDER BY id").to_arrow_table()
    assert read.cast(TABLE.schema).equals(TABLE)


def test_polars_reads_every_encoding(file: Path) -> None:
    read = pl.read_parquet(file).to_arrow()
    assert read.cast(TABLE.schema).equals(TABLE)


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_both_readers_of_spark_read_every_encoding(spark: SparkSession, file: Path, vectorized: str) -> None:
    with confs(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        read = spark.read.parquet(str(file)).orderBy("id").toArrow()
    assert read.cast(TABLE.schema).equals(TABLE)
