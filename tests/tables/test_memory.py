# SPDX-License-Identifier: Apache-2.0
"""A writer makes a table's files within its quota, although the files are several times as large as the quota."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter

_PREFIX = "spark.updraft.write."
_QUOTA_BYTES = 24 << 20
_ROWS = 300_000
_TEXT_BYTES = 256


@pytest.mark.parametrize("using", ["delta", "iceberg"])
def test_a_table_is_written_within_the_quota(spark: SparkSession, using: str) -> None:
    root = Path(str(spark.conf.get("spark.sql.catalog.iceberg.warehouse"))).parent
    table = "iceberg.memory.quota" if using == "iceberg" else "memory_quota"
    texts = "concat(sha2(cast(id AS string), 512), sha2(cast(-id AS string), 512)) AS text"
    with LocalWriter(root, arguments=["--quota-bytes", str(_QUOTA_BYTES)]) as writer:
        confs = {f"{_PREFIX}tables": using, f"{_PREFIX}endpoint": writer.tcp_endpoint, f"{_PREFIX}unsupported": "fail"}
        with runtime_confs(spark, confs):
            spark.sql(f"CREATE TABLE {table} USING {using} AS SELECT id, {texts} FROM range(0, {_ROWS}, 1, 2)")
        peak_bytes = writer.status()["peak_bytes"]
        writer.becomes_empty()
    assert spark.sql(f"SELECT count(DISTINCT text), max(length(text)) FROM {table}").first() == (_ROWS, _TEXT_BYTES)
    assert _ROWS * _TEXT_BYTES > 3 * _QUOTA_BYTES
    assert 0 < peak_bytes <= _QUOTA_BYTES
