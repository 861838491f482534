# SPDX-License-Identifier: Apache-2.0
"""The SQL tab shows the cost of a table's files, and which files the writer service did not make, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs
from tests.support.sql_tab import Operator, last_query, operators_since, stages
from tests.support.waiting import until
from tests.support.writer import LocalWriter

_PREFIX = "spark.updraft.write."
_AWAY = {f"{_PREFIX}endpoint": "grpc://127.0.0.1:1", f"{_PREFIX}connectTimeout": "200ms", f"{_PREFIX}fallback": "local"}
_COSTS = {f"time {what}" for what in ("throttled by the quota", "spent encoding", "spent storing", "that tasks waited")}
_FORMATS = ("delta", "iceberg")
_OWN = {"files by Spark's own writer"}


@pytest.fixture(autouse=True)
def writes_tables(spark: SparkSession, writer: LocalWriter) -> Iterator[None]:
    confs = {"tables": "delta, iceberg", "acquireTimeout": "1s", "endpoint": writer.tcp_endpoint}
    with runtime_confs(spark, {f"{_PREFIX}{name}": value for name, value in confs.items()}):
        yield


_ROWS = "SELECT id, id % 3 AS k FROM range(0, 100, 1, 2)"


def _table(spark: SparkSession, using: str, name: str, properties: str = "'comment' = ''", partitions: str = "") -> str:
    table = f"iceberg.tab.{name}" if using == "iceberg" else f"tab_{name}"
    columns = f"(id BIGINT, k BIGINT) USING {using} {partitions}"
    spark.sql(f"CREATE TABLE {table} {columns} TBLPROPERTIES ({properties})")
    return table


def _insert(spark: SparkSession, table: str, query: str = _ROWS) -> list[Operator]:
    """Insert rows, by default with two tasks, and return the operators of this query."""
    before = last_query(spark)
    spark.sql(f"INSERT INTO {table} {query}")

    def shown() -> list[Operator]:
        found = operators_since(spark, before)
        # Spark adds up a query's metrics only after the query has ended.
        return found if any(_OWN & operator.metrics.keys() or _of_iceberg(operator) for operator in found) else []

    return until("the metrics are there", shown)


def _of_iceberg(operator: Operator) -> bool:
    return any(name.startswith("writes by Iceberg") for name in operator.metrics)


@pytest.mark.parametrize("using", _FORMATS)
@pytest.mark.parametrize("case", ["whole", "partitioned", "after a shuffle"])
def test_it_shows_files_bytes_and_throttling(spark: SparkSession, using: str, case: str) -> None:
    partitions = "PARTITIONED BY (k)" if case == "partitioned" else ""
    table = _table(spark, using, f"costs_{case.replace(' ', '_')}", partitions=partitions)
    query = _ROWS
    if case == "after a shuffle":
        # Adaptive execution shows every version of its plan; the test expects the input operator once.
        query = f"SELECT DISTINCT * FROM ({query})"
    found = _insert(spark, table, query)
    files = spark.sql(f"SELECT DISTINCT input_file_name() FROM {table}").count()
    inputs = [operator for operator in found if operator.name.startswith("WriterInput")]
    assert len(inputs) == 1, found
    shown = inputs[0].metrics
    assert shown["files"] == str(files)
    assert shown["files by Spark's own writer"] == "0"
    assert _COSTS | {"bytes of rows", "bytes of files", "row groups"} <= shown.keys()
    if case == "partitioned" and using == "delta":
        # Check Delta alone: Iceberg makes Spark distribute rows by partition, with and without the writer.
        assert not any("Exchange" in operator.name for operator in found), found


@pytest.mark.parametrize("using", _FORMATS)
def test_batches_of_a_columnar_scan_go_to_the_writer_as_batches(
    spark: SparkSession, using: str, tmp_path: Path
) -> None:
    table = _table(spark, using, "batches")
    spark.sql("SELECT id, id % 3 AS k FROM range(10)").write.parquet(str(tmp_path / "rows"))
    found = _insert(spark, table, f"SELECT id, k FROM parquet.`{tmp_path}/rows`")
    assert "WriterInput batches" in {operator.name for operator in found}


def test_cached_rows_go_to_partitions_as_rows(spark: SparkSession) -> None:
    """A scan of cached data could return batches, but Delta sorts its rows by partition."""
    table = _table(spark, "delta", "cached", partitions="PARTITIONED BY (k)")
    cached = spark.sql(_ROWS).cache()
    found = _insert(spark, table)
    assert {"WriterInput rows", "InMemoryTableScan"} <= {operator.name for operator in found}
    assert spark.table(table).count() == cached.count()
    cached.unpersist()


def _own_files(operators: list[Operator]) -> dict[str, str]:
    """Return the metrics about files that the writer service did not make."""
    return {name: text for found in operators for name, text in found.metrics.items() if "own writer" in name}


def test_it_counts_the_files_that_delta_makes_while_the_writer_is_away(spark: SparkSession) -> None:
    table = _table(spark, "delta", "away")
    with runtime_confs(spark, _AWAY):
        assert _own_files(_insert(spark, table)) == {"files by Spark's own writer": "2"}


@pytest.mark.parametrize(
    ("name", "properties", "because"),
    [
        ("away", "'comment' = ''", ""),
        ("version", "'write.parquet.page-version' = 'v2'", ", because of write.parquet.page-version = v2"),
    ],
)
def test_it_names_a_write_whose_files_iceberg_makes(
    spark: SparkSession, name: str, properties: str, because: str
) -> None:
    table = _table(spark, "iceberg", name, properties)
    with runtime_confs(spark, _AWAY):
        found = _own_files(_insert(spark, table))
    assert found[f"writes by Iceberg's own writer{because}"] == "1"


def test_the_stage_has_the_reason_for_the_files_that_delta_makes(spark: SparkSession) -> None:
    table = _table(
        spark,
        "delta",
        "compat",
        "'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name'",
    )
    with runtime_confs(spark, _AWAY):
        assert _own_files(_insert(spark, table)) == {"files by Spark's own writer": "2"}
    name = "updraft writer: files by Spark's own writer, because of delta.enableIcebergCompatV2 = true"
    assert any(stage.accumulators.get(name) == "2" for stage in stages(spark))
