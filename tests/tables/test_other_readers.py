# SPDX-License-Identifier: Apache-2.0
"""Delta and Iceberg tables whose data files the writer makes; delta-rs, pyiceberg, DuckDB and polars read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter
from tests.tables.conftest import has_iceberg
from tests.tables.scenarios import FOR_FEW_ROWS, TYPES

_ROWS = 100
_TEXT = "concat('text ', lpad(id, 3, '0')) AS s"
_SELECT = f"SELECT id, id % 3 AS k, {_TEXT}, {', '.join(TYPES)}"
_ACTIONS = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
_STEPS = (
    f"INSERT INTO {{t}} {_SELECT} FROM range(0, {_ROWS}, 1, 2)",
    "UPDATE {t} SET double = NULL, s = 'changed' WHERE id % 10 = 7",
    "DELETE FROM {t} WHERE id BETWEEN 30 AND 40",
    f"MERGE INTO {{t}} t USING ({_SELECT} FROM range(90, 110)) s ON t.id = s.id {_ACTIONS}",
)
# Filters that each select some rows of some files.
_FILTERS = ("id >= 80", "double < 2", "s = 'changed'", "s > 'text 08'", "int = 42", "k = 1")


@dataclass(frozen=True)
class Table:
    """Table whose files the writer has made.

    Attributes:
        wanted: the table's rows, as Spark reads them.
        path: path of the table's directory for Delta, of its newest metadata file for Iceberg.
        selected: the ids of the rows that Spark finds with each filter.
    """

    wanted: list[dict[str, Any]]
    path: str
    selected: dict[str, list[int]]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, writer: LocalWriter) -> dict[str, Table]:
    iceberg = Path(str(spark.conf.get("spark.sql.catalog.iceberg.warehouse")))
    delta = str(iceberg.parent / "readers")
    names = {"delta": f"delta.`{delta}`"}
    if has_iceberg():
        names["iceberg"] = "iceberg.readers.table"
    confs = {
        "spark.updraft.write.tables": "delta, iceberg",
        "spark.updraft.write.smallWriteBytes": "0",
        "spark.updraft.write.endpoint": writer.tcp_endpoint,
        "spark.updraft.write.unsupported": "fail",
    }
    with runtime_confs(spark, confs):
        for using, name in names.items():
            _write(spark, name, using)
    places = {"delta": lambda: delta, "iceberg": lambda: _newest(iceberg / "readers/table/metadata")}
    with runtime_confs(spark, FOR_FEW_ROWS):
        return {using: _read(spark, name, places[using]()) for using, name in names.items()}


def _newest(metadata: Path) -> str:
    return str(metadata / f"v{(metadata / 'version-hint.text').read_text()}.metadata.json")


def _write(spark: SparkSession, table: str, using: str) -> None:
    columns = spark.sql(f"{_SELECT} FROM range(1)")
    if using == "iceberg":
        # Iceberg has no integers of one or two bytes, so use int.
        columns = columns.withColumns({name: columns[name].cast("int") for name in ("byte", "short")})
    spark.sql(f"CREATE TABLE {table} ({columns._jdf.schema().toDDL()}) USING {using} PARTITIONED BY (k)")
    for step in _STEPS:
        spark.sql(step.replace("{t}", table))


def _read(spark: SparkSession, table: str, path: str) -> Table:
    selected = {
        where: [row.id for row in spark.sql(f"SELECT id FROM {table} WHERE {where} ORDER BY id").collect()]
        for where in _FILTERS
    }
    return Table(_sorted(spark.table(table).toArrow()), path, selected)


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def _ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def test_delta_rs_reads_a_delta_table(tables: dict[str, Table]) -> None:
    table = tables["delta"]
    found = QueryBuilder().register("t", DeltaTable(table.path))
    assert _sorted(pa.table(found.execute("SELECT * FROM t"))) == table.wanted
    for where, wanted in table.selected.items():
        assert _ids(pa.table(found.execute(f"SELECT id FROM t WHERE {where}"))) == wanted, where


def test_pyiceberg_reads_an_iceberg_table(tables: dict[str, Table]) -> None:
    table = tables["iceberg"]
    found = StaticTable.from_metadata(table.path)
    assert _sorted(found.scan().to_arrow()) == table.wanted
    for where, wanted in table.selected.items():
        assert _ids(found.scan(row_filter=where, selected_fields=("id",)).to_arrow()) == wanted, where


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_polars_reads_the_table(tables: dict[str, Table], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Choose pyiceberg's planner, because the default planner warns that another package would be faster.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = tables[name]
    found = (pl.scan_delta if name == "delta" else pl.scan_iceberg)(table.path)
    assert _sorted(found.collect().to_arrow()) == table.wanted
    for where, wanted in table.selected.items():
        assert _ids(found.filter(pl.sql_expr(where)).select("id").collect().to_arrow()) == wanted, where


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_duckdb_reads_the_files_of_the_table(tables: dict[str, Table], name: str) -> None:
    table = tables[name]
    if name == "delta":
        found = duckdb.read_parquet(DeltaTable(table.path).file_uris(), hive_partitioning=True)
        # DuckDB reads INT96, Spark's default, as timestamps without a time zone.
        found = found.project('* REPLACE (timezone(\'UTC\', "at") AS "at")')
    else:
        tasks = StaticTable.from_metadata(table.path).scan().plan_files()
        found = duckdb.read_parquet([task.file.file_path for task in tasks])
    assert _sorted(found.to_arrow_table()) == table.wanted
    for where, wanted in table.selected.items():
        assert _ids(found.filter(where).select("id").to_arrow_table()) == wanted, where
