# SPDX-License-Identifier: Apache-2.0
"""Disk that fills up during a write: the write fails as on stock, and the table stays unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.disks import small_disk, why_no_mount
from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter
from tests.tables.kept_table import TEXT, KeptTable

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(bool(why_no_mount()), reason=why_no_mount())]

_PREFIX = "spark.updraft.write."
# Large enough for the writer's spare blocks and a few small files, but too small for the _LARGE rows.
_DISK = "48m"
_SMALL, _LARGE = 1_000, 3_000_000


def _insert(spark: SparkSession, table: KeptTable, batch: int, rows: int) -> None:
    columns = f"cast({batch} AS bigint) AS batch, id, {TEXT} AS text"
    spark.sql(f"INSERT INTO {table.name} SELECT {columns} FROM range(0, {rows}, 1, 2)")


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_full_disk_fails_the_write_alone(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    errors = {}
    for side in ("stock", "ours"):
        root = tmp_path / side
        root.mkdir()
        with small_disk(root, _DISK), LocalWriter(root) as writer:
            table = KeptTable(spark, table_format, root)
            confs = {
                **table.confs,
                f"{_PREFIX}tables": table_format if side == "ours" else "none",
                f"{_PREFIX}endpoint": writer.tcp_endpoint,
                f"{_PREFIX}unsupported": "fail",
            }
            with runtime_confs(spark, confs):
                table.create()
                _insert(spark, table, 0, _SMALL)
                with pytest.raises((PySparkException, Py4JJavaError)) as error:
                    _insert(spark, table, 1, _LARGE)
                errors[side] = error.value
                assert table.batches() == {0: _SMALL}
                writer.becomes_empty()
                if side == "ours":
                    # Unlike on stock, the failed write has removed its files, so the disk has room again.
                    _insert(spark, table, 2, _SMALL)
                    table.clean()
                    assert table.data() == table.in_use()
                    assert table.is_by_writer()
                    assert table.batches() == {0: _SMALL, 2: _SMALL}
    assert type(errors["ours"]) is type(errors["stock"]), errors
    assert all("No space left on device" in str(error) for error in errors.values()), errors
