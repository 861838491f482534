# SPDX-License-Identifier: Apache-2.0
"""Reads of tables whose files the writer makes: the same rows from as many files as on stock, with both readers."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.support.plan_metrics import metrics_of
from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter
from tests.tables.scenarios import FOR_FEW_ROWS, TYPES, rows

_PREFIX = "spark.updraft.write."
_FILTERS = (
    "id BETWEEN 150 AND 160",
    "double > 57",
    "s LIKE 'text 39%'",
    "s IS NULL",
    "large_decimal = 250",
    "day < DATE'1971-01-01'",
    "struct.n = 7",
    "k = 1 AND id > 350",
    "at IS NOT NULL AND id < 0",
)
# Number of files of each side: four appends to two partitions.
_FILES = 8
# Scan metrics that count the files read.
_READ = {"delta": "numFiles", "iceberg": "resultDataFiles"}
_SCAN = {"delta": "Scan parquet", "iceberg": "BatchScan"}


class _Tables:
    """One table for each side."""

    def __init__(self, spark: SparkSession, using: str, endpoint: str) -> None:
        self.using = using
        self.names = {}
        for side, tables in (("stock", "none"), ("ours", "delta, iceberg")):
            name = f"{'iceberg.reads.' if using == 'iceberg' else 'reads_'}{side}"
            confs = {f"{_PREFIX}tables": tables, f"{_PREFIX}endpoint": endpoint, f"{_PREFIX}unsupported": "fail"}
            with runtime_confs(spark, confs):
                _write(spark, using, name)
            self.names[side] = name


def _write(spark: SparkSession, using: str, name: str) -> None:
    text = "if(id % 50 = 0, NULL, concat('text ', lpad(id, 3, '0'))) AS s"
    # Keep the values of small integer types in range.
    types = ", ".join(TYPES).replace("cast(id AS tinyint)", "cast(id % 100 AS tinyint)")
    query = f"SELECT id, id % 2 AS k, {text}, {types}"
    columns = spark.sql(f"{query} FROM range(1)")
    if using == "iceberg":
        # Iceberg has no integers of one or two bytes, so use int.
        columns = columns.withColumns({name: columns[name].cast("int") for name in ("byte", "short")})
    spark.sql(f"CREATE TABLE {name} ({columns._jdf.schema().toDDL()}) USING {using} PARTITIONED BY (k)")
    for begin in range(0, 400, 100):
        spark.sql(f"INSERT INTO {name} {query} FROM range({begin}, {begin + 100}, 1, 1)")


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def tables(spark: SparkSession, writer: LocalWriter, request: pytest.FixtureRequest) -> _Tables:
    return _Tables(spark, request.param, writer.tcp_endpoint)


def _files_read(spark: SparkSession, tables: _Tables, side: str, predicate: str) -> int:
    """Return the number of files that a query with a filter reads."""
    # Every filter leaves at least one file, because a query without files has no scan.
    frame = spark.sql(f"SELECT id, s FROM {tables.names[side]} WHERE {predicate}")
    frame.collect()
    return metrics_of(frame, _SCAN[tables.using])[_READ[tables.using]]


def test_data_skipping_leaves_the_same_number_of_files(spark: SparkSession, tables: _Tables) -> None:
    with runtime_confs(spark, FOR_FEW_ROWS):
        read = {
            side: [_files_read(spark, tables, side, predicate) for predicate in ("true", *_FILTERS)]
            for side in tables.names
        }
    assert read["ours"] == read["stock"]
    assert read["stock"][0] == _FILES
    assert len(set(read["stock"])) > 3, "the filters skip different numbers of files"


@pytest.mark.parametrize("vectorised", ["true", "false"], ids=["batches", "rows"])
def test_both_readers_find_the_rows_of_stock(spark: SparkSession, tables: _Tables, vectorised: str) -> None:
    confs = {
        "spark.sql.parquet.enableVectorizedReader": vectorised,
        "spark.sql.iceberg.vectorization.enabled": vectorised,
    }
    with runtime_confs(spark, confs):
        for predicate in ("true", *_FILTERS):
            queries = [f"SELECT * FROM {tables.names[side]} WHERE {predicate}" for side in ("stock", "ours")]
            assert rows(spark, queries[1]) == rows(spark, queries[0])
