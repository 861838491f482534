# SPDX-License-Identifier: Apache-2.0
"""Writes of Delta tables for which no writer is available: Delta's own writer makes the files, or the write fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from tests.support.spark import another_session, runtime_confs
from tests.support.writer import LocalWriter
from tests.tables.delta_log import commits, data_files
from tests.tables.scenarios import FOR_FEW_ROWS
from tests.tables.unfit_writers import UNFIT, unfit_writer

_PREFIX = "spark.updraft.write."
_AWAY = {f"{_PREFIX}endpoint": "grpc://127.0.0.1:1", f"{_PREFIX}connectTimeout": "200ms"}
_FAILURES = (PySparkException, Py4JJavaError)


def _here(writer: LocalWriter) -> dict[str, str]:
    """Return settings with which the writer can be reached, however busy this machine is."""
    return {f"{_PREFIX}endpoint": writer.tcp_endpoint, f"{_PREFIX}connectTimeout": "30s"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture(autouse=True)
def writes_delta(spark: SparkSession) -> Iterator[None]:
    with runtime_confs(spark, {f"{_PREFIX}tables": "delta", f"{_PREFIX}acquireTimeout": "1s", **_AWAY}):
        yield


def _write(spark: SparkSession, place: Path, **options: str) -> None:
    rows = spark.range(0, 10, 1, 1)
    rows.write.format("delta").mode("append").options(**options).save(str(place))


def _rows(spark: SparkSession, place: Path) -> list[Row]:
    with runtime_confs(spark, FOR_FEW_ROWS):
        return list(spark.read.format("delta").load(str(place)).collect())


def _by_delta(place: Path) -> bool:
    makers = {str(pq.read_metadata(file).created_by).split()[0] for file in data_files(place)}
    assert makers
    return makers == {"parquet-mr"}


def test_a_writer_that_is_away_fails_the_write_and_nothing_is_committed(spark: SparkSession, place: Path) -> None:
    with pytest.raises(_FAILURES, match=r"127\.0\.0\.1:1"):
        _write(spark, place)
    assert commits(place) == []
    assert data_files(place) == []


def test_with_a_local_fallback_delta_makes_the_files_that_the_writer_would(spark: SparkSession, place: Path) -> None:
    with runtime_confs(spark, {f"{_PREFIX}fallback": "local"}):
        _write(spark, place)
        spark.sql(f"DELETE FROM delta.`{place}` WHERE id > 4")
    assert _by_delta(place)
    assert spark.read.format("delta").load(str(place)).count() == 5


def test_a_writer_that_refuses_the_path_is_replaced_too(
    spark: SparkSession, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with LocalWriter(tmp_path_factory.mktemp("elsewhere")) as writer:
        confs = {**_here(writer), f"{_PREFIX}fallback": "local"}
        with runtime_confs(spark, confs):
            _write(spark, place)
        assert _by_delta(place)
        with runtime_confs(spark, {**confs, f"{_PREFIX}delivery": "return"}):
            _write(spark, place)
    assert not _by_delta(place)
    assert spark.read.format("delta").load(str(place)).count() == 20


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_writer_that_is_full_or_of_another_version_is_replaced_too(
    spark: SparkSession, place: Path, tmp_path_factory: pytest.TempPathFactory, unfit: str
) -> None:
    with (
        unfit_writer(place.parent, tmp_path_factory.mktemp("held"), unfit) as writer,
        runtime_confs(spark, {**_here(writer), f"{_PREFIX}connectTimeout": "2s", f"{_PREFIX}fallback": "local"}),
    ):
        _write(spark, place)
    assert _by_delta(place)


def test_what_the_writer_cannot_make_is_an_error_if_the_session_wants_one(spark: SparkSession, place: Path) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{place}` (id BIGINT) USING delta"
        " TBLPROPERTIES (delta.enableIcebergCompatV2 = true, delta.columnMapping.mode = 'name')"
    )
    with (
        runtime_confs(spark, {f"{_PREFIX}unsupported": "fail"}),
        pytest.raises(_FAILURES, match=r"delta\.enableIcebergCompatV2 = true"),
    ):
        _write(spark, place)
    _write(spark, place)
    assert _by_delta(place)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} SELECT id, 'new' FROM range(10, 12)",
        "INSERT OVERWRITE {t} SELECT id, 'new' FROM range(10)",
        "UPDATE {t} SET s = 'new' WHERE id > 4",
        "DELETE FROM {t} WHERE id > 4",
        "MERGE INTO {t} t USING (SELECT id FROM range(5)) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
    ids=lambda statement: statement.split(maxsplit=2)[0] + statement.split(maxsplit=2)[1][:1],
)
@pytest.mark.parametrize("known", [True, False])
def test_explain_says_why_delta_makes_the_files(spark: SparkSession, place: Path, statement: str, known: bool) -> None:
    compat = "" if known else "TBLPROPERTIES (delta.enableIcebergCompatV2 = true, delta.columnMapping.mode = 'name')"
    sql = statement.replace("{t}", f"delta.`{place}`")
    spark.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, s STRING) USING delta {compat}")
    with runtime_confs(spark, {f"{_PREFIX}tables": "none"}):
        spark.sql(f"INSERT INTO delta.`{place}` SELECT id, 'old' FROM range(0, 10, 1, 1)")
    (plan,) = spark.sql(f"EXPLAIN {sql}").first() or ("",)
    reason = "FilesByDelta because of delta.enableIcebergCompatV2 = true"
    assert (reason in plan) is not known
    assert ("FilesByDelta" in plan) is not known
    if not known:
        before = _rows(spark, place)
        spark.sql(sql)
        assert _rows(spark, place) != before
        assert _by_delta(place)


def test_other_sessions_and_other_settings_leave_delta_alone(spark: SparkSession, place: Path) -> None:
    # After this query, this thread observes transactions.
    assert spark.range(0, 3, 1, 1).count() == 3
    with another_session(spark) as other:
        _write(other, place)
    with runtime_confs(spark, {f"{_PREFIX}tables": "none"}):
        _write(spark, place)
    assert _by_delta(place)


def test_a_wrong_setting_fails_writes_of_tables_and_nothing_else(spark: SparkSession, place: Path) -> None:
    with runtime_confs(spark, {f"{_PREFIX}tables": "dleta"}):
        assert spark.range(0, 3, 1, 1).count() == 3
        with pytest.raises(_FAILURES, match=r"spark\.updraft\.write\.tables"):
            _write(spark, place)
        spark.sql(f"SET {_PREFIX}tables = none")
        _write(spark, place)
    assert len(commits(place)) == 1
