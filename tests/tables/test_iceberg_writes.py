# SPDX-License-Identifier: Apache-2.0
"""Iceberg tables whose data files the writer makes: rows, files, manifests and snapshots equal those of stock."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.kinds_of_spark import needs_spark
from tests.support.writer import LocalWriter
from tests.tables.iceberg_metadata import data_files, entries, is_delete_file, schemas, snapshots
from tests.tables.iceberg_scenarios import EVERYDAY, SCENARIOS
from tests.tables.scenarios import Place, parameters, rows, run

_PREFIX = "spark.updraft.write."
# Name of the library with which the writer encodes.
_OURS = "parquet-cpp"
# Iceberg 1.11, for Spark 4.0, does not count nulls of a floating-point field inside null structs.
_NULL_STRUCTS = "nulls_inside"
# Scenarios for a catalog that keeps its tables in a database: each kind of write, and each way to create a table.
_IN_A_DATABASE = (
    "ctas_partitioned",
    "rtas",
    "append",
    "insert_overwrite_dynamic",
    "overwrite_where",
    "merge",
    "merge_on_read",
    "evolved_columns",
    "branch",
    "stream",
)


@pytest.fixture(scope="module")
def root(spark: SparkSession) -> Path:
    return Path(str(spark.conf.get("spark.sql.catalog.iceberg.warehouse")))


def _made_by_writer(files: list[Path]) -> set[bool]:
    return {
        file.suffix == ".parquet" and str(pq.read_metadata(file).created_by).startswith(_OURS)
        for file in files
        if not is_delete_file(file)
    }


@pytest.mark.parametrize("name", parameters(SCENARIOS, EVERYDAY))
def test_an_iceberg_table_is_what_stock_iceberg_makes(
    spark: SparkSession, writer: LocalWriter, root: Path, tmp_path: Path, name: str
) -> None:
    _compare(spark, writer, "iceberg", root, tmp_path, name)


@pytest.mark.parametrize("name", parameters({name: SCENARIOS[name] for name in _IN_A_DATABASE}, frozenset({"merge"})))
def test_so_is_one_of_a_catalog_in_a_database(
    spark: SparkSession, writer: LocalWriter, root: Path, tmp_path: Path, name: str
) -> None:
    for side in ("stock", "ours"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS database.{side}")
    _compare(spark, writer, "database", root / "database", tmp_path, name)


def _compare(spark: SparkSession, writer: LocalWriter, catalog: str, root: Path, scratch: Path, name: str) -> None:
    """Run a scenario on stock and on Updraft, with the tables of this catalog, and compare the tables."""
    scenario = SCENARIOS[name]
    needs_spark(scenario.since, name)
    sides: dict[str, dict[str, str]] = {
        "stock": {},
        "ours": {f"{_PREFIX}tables": "delta, iceberg", f"{_PREFIX}endpoint": writer.tcp_endpoint},
    }
    places, errors = {}, {}
    for side, confs in sides.items():
        place = places[side] = Place(f"{catalog}.{side}.{name}", root / side / name, scratch / side)
        errors[side] = run(spark, scenario, place, confs)
    stock, ours = places["stock"], places["ours"]
    assert errors["ours"] == errors["stock"]
    assert bool(errors["stock"]) == scenario.fails
    files = {side: data_files(place.directory) for side, place in places.items()}
    assert _made_by_writer(files["stock"]) <= {False}
    made = _made_by_writer(files["ours"])
    # A failed write removes its files, so the table may contain none.
    assert made == {scenario.by_writer} or (not files["stock"] and not made)
    assert len(files["ours"]) == len(files["stock"])
    parquet = {side: [file for file in found if file.suffix == ".parquet"] for side, found in files.items()}
    assert schemas(parquet["ours"]) == schemas(parquet["stock"])
    assert spark.table(ours.table).schema.simpleString() == spark.table(stock.table).schema.simpleString()
    found, wanted = snapshots(spark, ours.table), snapshots(spark, stock.table)
    assert [text for _, text in found] == [text for _, text in wanted]
    if not (name == _NULL_STRUCTS and spark.version.startswith("4.0")):
        assert entries(spark, ours.table) == entries(spark, stock.table)
    for (of_ours, _), (of_stock, _) in zip(found, wanted, strict=True):
        queries = [
            f"SELECT * FROM {place.table} VERSION AS OF {version}"
            for place, version in ((stock, of_stock), (ours, of_ours))
        ]
        assert rows(spark, queries[1]) == rows(spark, queries[0])
    writer.becomes_empty()
