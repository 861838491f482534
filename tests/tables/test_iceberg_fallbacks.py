# SPDX-License-Identifier: Apache-2.0
"""Writes of Iceberg tables for which no writer is available, and writes that fail or conflict with another commit."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tests.support.spark import another_session, runtime_confs
from tests.support.waiting import until
from tests.support.writer import LocalWriter
from tests.tables.iceberg_metadata import data_files, snapshots
from tests.tables.unfit_writers import UNFIT, unfit_writer

_PREFIX = "spark.updraft.write."
_AWAY = {f"{_PREFIX}endpoint": "grpc://127.0.0.1:1", f"{_PREFIX}connectTimeout": "200ms"}
_FAILURES = (PySparkException, Py4JJavaError)


class _Table:
    """Table of one test."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.name = f"iceberg.fallbacks.{name}"
        self.directory = Path(str(spark.conf.get("spark.sql.catalog.iceberg.warehouse"))) / "fallbacks" / name
        self._spark = spark

    def create(self, properties: str = "'comment' = ''") -> None:
        self._spark.sql(f"CREATE TABLE {self.name} (id BIGINT) USING iceberg TBLPROPERTIES ({properties})")

    def append(self, spark: SparkSession | None = None) -> None:
        (spark or self._spark).range(0, 10, 1, 1).writeTo(self.name).append()

    def by_iceberg(self) -> bool:
        makers = {str(pq.read_metadata(file).created_by).split()[0] for file in data_files(self.directory)}
        assert makers
        return makers == {"parquet-mr"}


def _here(writer: LocalWriter) -> dict[str, str]:
    """Return settings with which the writer can be reached, however busy this machine is."""
    return {f"{_PREFIX}endpoint": writer.tcp_endpoint, f"{_PREFIX}connectTimeout": "30s"}


@pytest.fixture
def table(spark: SparkSession, request: pytest.FixtureRequest) -> _Table:
    return _Table(spark, re.sub(r"\W", "_", request.node.name))


@pytest.fixture(autouse=True)
def writes_iceberg(spark: SparkSession) -> Iterator[None]:
    with runtime_confs(spark, {f"{_PREFIX}tables": "iceberg", f"{_PREFIX}acquireTimeout": "1s", **_AWAY}):
        yield


def test_a_writer_that_is_away_fails_the_write_and_nothing_is_committed(spark: SparkSession, table: _Table) -> None:
    table.create()
    with pytest.raises(_FAILURES, match=r"127\.0\.0\.1:1"):
        table.append()
    assert snapshots(spark, table.name) == []
    assert data_files(table.directory) == []


def test_with_a_local_fallback_iceberg_makes_the_files_that_the_writer_would(
    spark: SparkSession, table: _Table
) -> None:
    table.create()
    with runtime_confs(spark, {f"{_PREFIX}fallback": "local"}):
        table.append()
        spark.sql(f"DELETE FROM {table.name} WHERE id > 4")
    assert table.by_iceberg()
    assert spark.table(table.name).count() == 5


def test_a_writer_that_refuses_the_path_is_replaced_too_and_may_return_the_bytes(
    spark: SparkSession, table: _Table, tmp_path: Path
) -> None:
    table.create()
    with LocalWriter(tmp_path) as writer:
        confs = {**_here(writer), f"{_PREFIX}fallback": "local"}
        with runtime_confs(spark, confs):
            table.append()
        assert table.by_iceberg()
        with runtime_confs(spark, {**confs, f"{_PREFIX}delivery": "return"}):
            table.append()
    assert not table.by_iceberg()
    assert spark.table(table.name).count() == 20


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_writer_that_is_full_or_of_another_version_is_replaced_too(
    spark: SparkSession, table: _Table, tmp_path: Path, unfit: str
) -> None:
    table.create()
    with (
        unfit_writer(table.directory, tmp_path, unfit) as writer,
        runtime_confs(spark, {**_here(writer), f"{_PREFIX}connectTimeout": "2s", f"{_PREFIX}fallback": "local"}),
    ):
        table.append()
    assert table.by_iceberg()


def test_what_the_writer_cannot_make_is_an_error_if_the_session_wants_one_and_explain_has_the_reason(
    spark: SparkSession, table: _Table
) -> None:
    table.create("'write.parquet.page-version' = 'v2'")
    with (
        runtime_confs(spark, {f"{_PREFIX}unsupported": "fail"}),
        pytest.raises(_FAILURES, match=r"write\.parquet\.page-version = v2"),
    ):
        table.append()
    [plan] = spark.sql(f"EXPLAIN INSERT INTO {table.name} SELECT id FROM range(3)").collect()
    assert "files by Iceberg, because of write.parquet.page-version = v2" in plan[0]
    table.append()
    assert table.by_iceberg()


def test_other_sessions_and_other_settings_leave_iceberg_alone(spark: SparkSession, table: _Table) -> None:
    table.create()
    with another_session(spark) as other:
        table.append(other)
    with runtime_confs(spark, {f"{_PREFIX}tables": "delta"}):
        table.append()
    assert table.by_iceberg()


def test_a_wrong_setting_fails_writes_of_tables_and_nothing_else(spark: SparkSession, table: _Table) -> None:
    table.create()
    with runtime_confs(spark, {f"{_PREFIX}tables": "delta, icebreg"}):
        assert spark.range(0, 3, 1, 1).count() == 3
        with pytest.raises(_FAILURES, match=r"spark\.updraft\.write\.tables"):
            table.append()
    assert snapshots(spark, table.name) == []


def test_batches_of_a_columnar_scan_go_to_the_writer_as_batches(
    spark: SparkSession, table: _Table, tmp_path: Path
) -> None:
    table.create()
    spark.range(0, 10, 1, 1).write.parquet(str(tmp_path / "rows"))
    for partitions, rows in (("", "batches"), ("ADD PARTITION FIELD id", "rows")):
        if partitions:
            spark.sql(f"ALTER TABLE {table.name} {partitions}")
        [plan] = spark.sql(f"EXPLAIN INSERT INTO {table.name} SELECT id FROM parquet.`{tmp_path}/rows`").collect()
        assert f"WriterInput {rows}" in plan[0]
        assert "files by Updraft's writer" in plan[0]


def test_a_function_that_raises_in_the_middle_leaves_no_file(
    spark: SparkSession, writer: LocalWriter, table: _Table
) -> None:
    def raises_late(value: int) -> int:
        if value == 49_000:
            raise ValueError("in the middle")
        return value

    table.create("'write.target-file-size-bytes' = '1'")
    rows = spark.range(0, 50_000, 1, 1).select(udf(raises_late, "bigint", useArrow=False)("id").alias("id"))
    confs = {**_here(writer), f"{_PREFIX}batchBytes": "16k"}
    with runtime_confs(spark, confs), pytest.raises(_FAILURES, match="in the middle"):
        rows.writeTo(table.name).append()
    assert data_files(table.directory) == []
    assert snapshots(spark, table.name) == []
    writer.becomes_empty()


def test_a_writer_that_dies_fails_the_write_and_leaves_no_file(spark: SparkSession, table: _Table) -> None:
    table.create()
    started, free = table.directory / "started", table.directory / "free"

    def held(value: int) -> int:
        if value == 1_000:
            started.touch()
            while not free.exists():
                time.sleep(0.05)
        return value

    rows = spark.range(0, 50_000, 1, 1).select(udf(held, "bigint", useArrow=False)("id").alias("id"))
    with LocalWriter(table.directory) as writer, ThreadPoolExecutor(1) as pool:
        confs = {**_here(writer), f"{_PREFIX}connectTimeout": "2s", f"{_PREFIX}batchBytes": "16k"}
        with runtime_confs(spark, confs):
            written = pool.submit(inheritable_thread_target(spark)(rows.writeTo(table.name).append))
            try:
                until("the file is open", lambda: started.exists() or written.done())
                os.kill(writer.pid, signal.SIGKILL)
            finally:
                free.touch()
            error = written.exception()
    assert isinstance(error, _FAILURES)
    assert "did not write" in str(error)
    assert data_files(table.directory) == []
    assert snapshots(spark, table.name) == []


def _delete_beside_a_delete(spark: SparkSession, table: _Table) -> str:
    """Delete rows while an earlier delete is still running, and return the earlier delete's error."""
    table.create()
    table.append()
    started, free = table.directory / "started", table.directory / "free"

    def held(value: int) -> bool:
        started.touch()
        while not free.exists():
            time.sleep(0.05)
        return value == 3

    spark.udf.register("held", udf(held, "boolean", useArrow=False))
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(inheritable_thread_target(spark)(spark.sql), f"DELETE FROM {table.name} WHERE held(id)")
        try:
            until("the table is read", lambda: started.exists() or deleted.done())
            spark.sql(f"DELETE FROM {table.name} WHERE id = 4")
        finally:
            free.touch()
        error = deleted.exception()
    assert len(data_files(table.directory)) == 2, "the file of the delete that was not committed is removed"
    # Compare the first lines up to the name of a file, without ids.
    lines = "\n".join(str(error).splitlines()[:2]).split("[", maxsplit=1)[0]
    return f"{type(error).__name__} {re.sub(r'[0-9]+', '#', lines)}"


def test_a_commit_conflicts_with_another_as_on_stock(spark: SparkSession, writer: LocalWriter) -> None:
    errors = []
    for tables in ("none", "iceberg"):
        table = _Table(spark, f"conflict_{tables}")
        with runtime_confs(spark, {f"{_PREFIX}tables": tables, **_here(writer)}):
            errors.append(_delete_beside_a_delete(spark, table))
    # Iceberg 1.11 words the conflict differently.
    assert re.search("conflict|[Rr]untime file filtering is not possible", errors[0]), errors[0]
    assert errors[0] == errors[1]


def test_a_long_text_in_one_row_group_stays_visible(spark: SparkSession, writer: LocalWriter, table: _Table) -> None:
    """A footer without bounds for one row group must not hide the rows of this row group."""
    groups = "TBLPROPERTIES ('write.parquet.row-group-size-bytes' = '1048576')"
    spark.sql(f"CREATE TABLE {table.name} (id BIGINT, s STRING) USING iceberg {groups}")
    with runtime_confs(spark, _here(writer)):
        long = "if(id = 299999, repeat('z', 5000), concat('m', id))"
        spark.sql(f"INSERT INTO {table.name} SELECT id, {long} FROM range(0, 300000, 1, 1)")
    [file] = data_files(table.directory)
    assert pq.read_metadata(file).num_row_groups > 1
    assert not table.by_iceberg()
    assert spark.sql(f"SELECT id FROM {table.name} WHERE s > 'y'").collect() == [(299999,)]
