# SPDX-License-Identifier: Apache-2.0
"""An overwrite that the writer would not carry out fails before it deletes or runs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications.running import differences
from tests.e2e.writer.conftest import DELIVERY, ENDPOINT, UNSUPPORTED
from tests.e2e.writer.written import FAILURES, rows
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool
from tests.support.spark import runtime_confs, wait_for_listeners
from tests.support.writer import LocalWriter

CONNECT_TIMEOUT = "spark.updraft.write.connectTimeout"
TOKEN_FILE = "spark.updraft.write.tokenFile"
NOBODY = {ENDPOINT: "grpc://127.0.0.1:1", CONNECT_TIMEOUT: "200ms"}
_ASKED = "a client asked whether the writer would open a file"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True)
class Table:
    """Managed table of the numbers below ten, partitioned by parity, and a directory for other writes."""

    spark: SparkSession
    name: str
    place: Path

    @property
    def directory(self) -> Path:
        return self.place / "directory"

    def create(self) -> None:
        _numbers(self.spark, 10).write.format("updraft-parquet").partitionBy("odd").saveAsTable(self.name)
        _numbers(self.spark, 10).write.format("updraft-parquet").save(str(self.directory))

    def files(self) -> dict[Path, int]:
        """Return every file with its modification time."""
        return {path: path.stat().st_mtime_ns for path in self.place.rglob("*") if path.is_file()}

    def rows(self) -> tuple[list[str], list[str]]:
        """Return the rows that Spark reads from the table and from the directory."""
        self.spark.catalog.refreshTable(self.name)
        return rows(self.spark.table(self.name)), rows(self.spark.read.parquet(str(self.directory)))


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).select("id", (F.col("id") % 2).alias("odd"))


def _grouped(spark: SparkSession) -> DataFrame:
    """Return new content whose query has a stage before the one that writes files."""
    return _numbers(spark, 100).groupBy("odd").agg(F.count("id").alias("id")).select("id", "odd")


def _save(table: Table, frame: DataFrame) -> None:
    frame.write.format("updraft-parquet").mode("overwrite").save(str(table.directory))


def _save_as_table(table: Table, frame: DataFrame) -> None:
    frame.write.format("updraft-parquet").mode("overwrite").partitionBy("odd").saveAsTable(table.name)


def _save_as_external_table(table: Table, frame: DataFrame) -> None:
    writer = frame.write.format("updraft-parquet").mode("overwrite").option("path", str(table.directory))
    writer.saveAsTable(table.name)


def _insert_into(table: Table, frame: DataFrame) -> None:
    frame.write.insertInto(table.name, overwrite=True)


def _insert_overwrite(table: Table, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("updates")
    table.spark.sql(f"INSERT OVERWRITE {table.name} SELECT id, odd FROM updates")


def _one_partition(table: Table, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("updates")
    table.spark.sql(f"INSERT OVERWRITE {table.name} PARTITION (odd = 1) SELECT id FROM updates WHERE odd = 1")


def _written_partitions(table: Table, frame: DataFrame) -> None:
    with runtime_confs(table.spark, {_OVERWRITE_MODE: "dynamic"}):
        frame.write.insertInto(table.name, overwrite=True)


def _directory(table: Table, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("updates")
    table.spark.sql(f"INSERT OVERWRITE DIRECTORY '{table.directory}' USING `updraft-parquet` SELECT * FROM updates")


Overwrite = Callable[[Table, DataFrame], None]
_OF_DIRECTORIES = (_save, _save_as_external_table, _directory)
OVERWRITES = [
    pytest.param(_save, id="save"),
    pytest.param(_save_as_table, id="saveAsTable"),
    pytest.param(_save_as_external_table, id="saveAsTable-path"),
    pytest.param(_insert_into, id="insertInto"),
    pytest.param(_insert_overwrite, id="insert-overwrite"),
    pytest.param(_one_partition, id="one-partition"),
    pytest.param(_written_partitions, id="written-partitions"),
    pytest.param(_directory, id="directory"),
]


@contextmanager
def _table_in(spark: SparkSession, database: str, place: Path) -> Iterator[Table]:
    """Create a table in a database below the writer's root."""
    spark.sql(f"CREATE DATABASE {database} LOCATION '{place / 'database'}'")
    table = Table(spark, f"{database}.numbers", place)
    try:
        table.create()
        yield table
    finally:
        spark.sql(f"DROP DATABASE {database} CASCADE")


@pytest.fixture
def table(spark: SparkSession, place: Path) -> Iterator[Table]:
    with _table_in(spark, "overwrites", place) as table:
        yield table


@pytest.fixture(scope="module")
def table_of_all(spark: SparkSession, writer: LocalWriter, root: Path) -> Iterator[Table]:
    with runtime_confs(spark, {ENDPOINT: writer.tcp_endpoint}), _table_in(spark, "unchanged", root / "all") as table:
        yield table


@pytest.fixture
def unchanged(table_of_all: Table) -> Iterator[Table]:
    """Return a table that tests share, and check at the end that its rows are still there."""
    before = table_of_all.rows()
    yield table_of_all
    assert table_of_all.rows() == before


@pytest.fixture(scope="module")
def guarded(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWriter]:
    """Start a writer that requires a token."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("secret\n")
    with LocalWriter(root, arguments=["--token-file", str(token)]) as writer:
        yield writer


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWriter]:
    """Start a writer with another root."""
    with LocalWriter(tmp_path_factory.mktemp("elsewhere")) as writer:
        yield writer


@pytest.fixture
def faults(
    pool: LocalPool, guarded: LocalWriter, elsewhere: LocalWriter, tmp_path: Path
) -> Mapping[str, Mapping[str, str]]:
    """Return error messages -> settings with which the writer would not write."""
    guess = tmp_path / "token"
    guess.write_text("guessed")
    return {
        r"cannot reach a writer at grpc://127\.0\.0\.1:1: .*or correct spark\.updraft\.write\.endpoint": NOBODY,
        r"is a pool, not a writer.*Set spark\.updraft\.write\.endpoint": {ENDPOINT: pool.tcp_endpoint},
        r"\(spark\.updraft\.write\.tokenFile\)": {ENDPOINT: guarded.tcp_endpoint, TOKEN_FILE: str(guess)},
        r"outside the roots .*spark\.updraft\.write\.delivery = return": {ENDPOINT: elsewhere.tcp_endpoint},
    }


@contextmanager
def nothing_changes(table: Table, message: str) -> Iterator[None]:
    """Expect the block to fail with the message, change no file and start no job."""
    context, before, jobs = table.spark.sparkContext, table.files(), _jobs_of_overwrites(table.spark)
    context.setJobGroup("overwrites", "an overwrite that fails")
    try:
        with pytest.raises(FAILURES, match=message):
            yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert _jobs_of_overwrites(table.spark) == jobs
    assert table.files() == before


def _jobs_of_overwrites(spark: SparkSession) -> set[int]:
    wait_for_listeners(spark)
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup("overwrites"))


@pytest.mark.parametrize("overwrite", OVERWRITES)
def test_an_overwrite_that_cannot_be_written_leaves_the_table_as_it_was(
    unchanged: Table, faults: Mapping[str, Mapping[str, str]], overwrite: Overwrite
) -> None:
    if overwrite in (_save_as_table, _save_as_external_table):
        needs_spark((4, 0), "saveAsTable that drops the table in its command, not before it")
    for message, confs in faults.items():
        with nothing_changes(unchanged, rf"(?s)cannot overwrite .*{message}"), runtime_confs(unchanged.spark, confs):
            overwrite(unchanged, _grouped(unchanged.spark))


@pytest.mark.parametrize("overwrite", OVERWRITES)
def test_a_healthy_overwrite_asks_once_and_replaces_the_rows(
    table: Table, writer: LocalWriter, overwrite: Overwrite
) -> None:
    asked = writer.log_file.read_text().count(_ASKED)
    overwrite(table, _grouped(table.spark))
    assert writer.log_file.read_text().count(_ASKED) == asked + 1
    spark = table.spark
    replaced = spark.read.parquet(str(table.directory)) if overwrite in _OF_DIRECTORIES else spark.table(table.name)
    assert rows(replaced.where("odd = 1").select("id", "odd")) == rows(_grouped(spark).where("odd = 1"))


def test_an_append_is_not_asked_for(table: Table, writer: LocalWriter) -> None:
    asked = writer.log_file.read_text().count(_ASKED)
    _numbers(table.spark, 5).write.insertInto(table.name)
    assert writer.log_file.read_text().count(_ASKED) == asked


def test_orc_is_asked_for_too(unchanged: Table) -> None:
    with nothing_changes(unchanged, "cannot overwrite"), runtime_confs(unchanged.spark, NOBODY):
        _grouped(unchanged.spark).write.format("updraft-orc").mode("overwrite").save(str(unchanged.directory))


@pytest.mark.parametrize("conf", ["spark.sql.adaptive.enabled", "spark.sql.optimizer.plannedWrite.enabled"])
def test_other_ways_to_plan_a_write_ask_too(table: Table, conf: str) -> None:
    with runtime_confs(table.spark, {conf: "false"}):
        with nothing_changes(table, "cannot overwrite"), runtime_confs(table.spark, NOBODY):
            _save(table, _grouped(table.spark))
        _save(table, _grouped(table.spark))
    assert rows(table.spark.read.parquet(str(table.directory))) == rows(_grouped(table.spark))


def test_a_missing_endpoint_is_named_before_anything_is_deleted(unchanged: Table) -> None:
    with nothing_changes(unchanged, r"set spark\.updraft\.write\.endpoint"):
        unchanged.spark.conf.unset(ENDPOINT)
        _save(unchanged, _grouped(unchanged.spark))


def test_what_the_writer_cannot_do_is_refused_before_anything_is_deleted(unchanged: Table) -> None:
    with (
        nothing_changes(unchanged, "the codec LZ4"),
        runtime_confs(unchanged.spark, {"spark.sql.parquet.compression.codec": "lz4"}),
    ):
        _insert_into(unchanged, _grouped(unchanged.spark))


def test_files_of_sparks_own_writer_need_no_writer(table: Table) -> None:
    confs = {**NOBODY, UNSUPPORTED: "local", "spark.sql.parquet.compression.codec": "lz4"}
    with runtime_confs(table.spark, confs):
        _save(table, _grouped(table.spark))
    assert rows(table.spark.read.parquet(str(table.directory))) == rows(_grouped(table.spark))


def test_bytes_that_come_back_need_no_root(table: Table, elsewhere: LocalWriter) -> None:
    with runtime_confs(table.spark, {ENDPOINT: elsewhere.tcp_endpoint, DELIVERY: "return"}):
        _save(table, _grouped(table.spark))
    assert rows(table.spark.read.parquet(str(table.directory))) == rows(_grouped(table.spark))


def test_a_plan_is_explained_without_asking(unchanged: Table) -> None:
    spark = unchanged.spark
    _numbers(spark, 5).createOrReplaceTempView("updates")
    with runtime_confs(spark, NOBODY):
        [(plan,)] = spark.sql(f"EXPLAIN INSERT OVERWRITE {unchanged.name} SELECT id, odd FROM updates").collect()
    assert "WriterCheck file:" in plan


def test_a_writer_that_comes_up_within_the_connect_timeout_is_waited_for(table: Table, root: Path) -> None:
    late = LocalWriter(root)
    with (
        runtime_confs(table.spark, {ENDPOINT: late.unix_endpoint, CONNECT_TIMEOUT: "60s"}),
        ThreadPoolExecutor(1) as driver,
    ):
        overwrite = driver.submit(_save, table, _grouped(table.spark))
        with late:
            overwrite.result()
    assert rows(table.spark.read.parquet(str(table.directory))) == rows(_grouped(table.spark))


def test_without_the_extension_the_writer_is_asked_from_where_its_socket_is(writer: LocalWriter, place: Path) -> None:
    needs_spark((4, 0), "PySpark that loads the extensions of the class path")
    assert differences("overwrites", writer.unix_endpoint, str(place)) == {}
