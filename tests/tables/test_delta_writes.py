# SPDX-License-Identifier: Apache-2.0
"""Delta tables whose data files the writer makes: equal to stock Delta's in rows, schema, log and time travel."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import runtime_confs
from tests.support.waiting import until
from tests.support.writer import LocalWriter
from tests.tables.delta_log import commits, data_files, versions_with_all_files
from tests.tables.delta_scenarios import EVERYDAY, SCENARIOS
from tests.tables.scenarios import FOR_FEW_ROWS, Place, parameters, run

_PREFIX = "spark.updraft.write."
# Name of the library with which the writer encodes.
_OURS = "parquet-cpp"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("delta")


def _made_by_writer(table: Path) -> set[bool]:
    return {str(pq.read_metadata(file).created_by).startswith(_OURS) for file in data_files(table)}


@pytest.mark.parametrize("name", parameters(SCENARIOS, EVERYDAY))
def test_a_delta_table_is_what_stock_delta_makes(
    spark: SparkSession, writer: LocalWriter, root: Path, name: str
) -> None:
    scenario = SCENARIOS[name]
    needs_spark(scenario.since, name)
    sides: dict[str, dict[str, str]] = {
        "stock": {},
        "ours": {f"{_PREFIX}tables": "delta", f"{_PREFIX}endpoint": writer.tcp_endpoint},
    }
    places, errors = {}, {}
    for side, confs in sides.items():
        place = places[side] = Place(
            f"{name}_{side}", root / f"{name}_{side}" / "table", root / f"{name}_{side}" / "scratch"
        )
        errors[side] = run(spark, scenario, place, confs)
    stock, ours = places["stock"], places["ours"]
    assert errors["ours"] == errors["stock"]
    assert bool(errors["stock"]) == scenario.fails
    assert _made_by_writer(stock.directory) <= {False}
    made = _made_by_writer(ours.directory)
    # A failed write removes its files, so the table may contain none.
    assert made == {scenario.by_writer} or (scenario.fails and not made)
    log = commits(stock.directory)
    assert commits(ours.directory) == log
    assert spark.table(ours.table).schema.simpleString() == spark.table(stock.table).schema.simpleString()
    # The logs are equal, so skip a version whose files all belong to later versions that are compared.
    for version in versions_with_all_files(ours.directory):
        wanted, found = _rows_of_both(spark, *(f"{place.table} VERSION AS OF {version}" for place in (stock, ours)))
        assert found == wanted, version
    writer.becomes_empty()


def _rows_of_both(spark: SparkSession, *tables: str) -> list[list[str]]:
    """Return the rows of each table, sorted as texts."""
    query = " UNION ALL ".join(f"SELECT {number}, * FROM {table}" for number, table in enumerate(tables))
    with runtime_confs(spark, FOR_FEW_ROWS):
        read = spark.sql(query).collect()
    return [sorted(str(tuple(row[1:])) for row in read if row[0] == number) for number in range(len(tables))]


def test_the_log_has_the_sizes_and_times_of_the_files(spark: SparkSession, writer: LocalWriter, root: Path) -> None:
    table = root / "sizes" / "table"
    with runtime_confs(spark, {f"{_PREFIX}tables": "delta", f"{_PREFIX}endpoint": writer.tcp_endpoint}):
        spark.sql(
            f"CREATE TABLE delta.`{table}` (id BIGINT, k BIGINT) USING delta PARTITIONED BY (k)"
            " TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        spark.sql(f"INSERT INTO delta.`{table}` SELECT id, id % 3 FROM range(0, 100, 1, 2)")
        spark.sql(f"UPDATE delta.`{table}` SET id = id + 1 WHERE id > 50")
    lines = [line for file in (table / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    actions = [json.loads(line) for line in lines]
    files = [action[kind] for action in actions for kind in ("add", "cdc") if kind in action]
    assert sorted(table / file["path"] for file in files) == sorted(data_files(table))
    for file in files:
        found = (table / file["path"]).stat()
        assert file["size"] == found.st_size
        assert file.get("modificationTime", found.st_mtime_ns // 1_000_000) == found.st_mtime_ns // 1_000_000


def _copy_beside_an_append(spark: SparkSession, table: Path) -> str:
    """Append to a table while another write reads the table, and return the other write's error."""
    started, free = table.with_name("started"), table.with_name("free")

    def held(value: int) -> int:
        started.touch()
        while not free.exists():
            time.sleep(0.05)
        return value

    spark.range(0, 10, 1, 1).write.format("delta").save(str(table))
    read = spark.read.format("delta").load(str(table)).where("id = 3")
    copy = read.select(udf(held, "bigint", useArrow=False)("id").alias("id")).write.format("delta").mode("append")
    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(inheritable_thread_target(spark)(copy.save), str(table))
        try:
            until("the table is read", lambda: started.exists() or copied.done())
            spark.range(0, 10, 1, 1).write.format("delta").mode("append").save(str(table))
        finally:
            free.touch()
        error = copied.exception()
    return f"{type(error).__name__} {str(error).split(maxsplit=1)[0]}"


def test_a_write_that_read_the_table_conflicts_with_another_as_on_stock(
    spark: SparkSession, writer: LocalWriter, root: Path
) -> None:
    errors = []
    for side, tables in (("stock", "none"), ("ours", "delta")):
        table = root / f"conflicts_{side}" / "table"
        with runtime_confs(spark, {f"{_PREFIX}tables": tables, f"{_PREFIX}endpoint": writer.tcp_endpoint}):
            errors.append(_copy_beside_an_append(spark, table))
        # Two commits: the table and the append, but not the copy.
        assert len(commits(table)) == 2, errors
    assert errors[0] == errors[1]
