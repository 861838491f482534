# SPDX-License-Identifier: Apache-2.0
"""Small writes of tables use the table format's own writer.

The session's writer cannot be reached, so a write that uses it fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs
from tests.support.sql_tab import stages
from tests.support.waiting import until

_LIMIT = "spark.updraft.write.smallWriteBytes"
_FAILURES = (PySparkException, Py4JJavaError)
_FORMATS = ("delta", "iceberg")


@pytest.fixture(autouse=True)
def writes_tables(spark: SparkSession) -> Iterator[None]:
    confs = {
        "spark.updraft.write.tables": "delta, iceberg",
        "spark.updraft.write.endpoint": "grpc://127.0.0.1:1",
        "spark.updraft.write.connectTimeout": "200ms",
        "spark.updraft.write.acquireTimeout": "1s",
        # With this setting, a write that the writer cannot make fails. A small write must not fail.
        "spark.updraft.write.unsupported": "fail",
        _LIMIT: "1m",
    }
    with runtime_confs(spark, confs):
        yield


def _table(spark: SparkSession, using: str, name: str) -> str:
    table = f"iceberg.small.{name}" if using == "iceberg" else f"small_{name}"
    with runtime_confs(spark, {"spark.updraft.write.tables": "none"}):
        spark.sql(f"CREATE TABLE {table} USING {using} AS SELECT id, id % 3 AS k FROM range(0, 10, 1, 1)")
    return table


# Consecutive statements, and the number of rows in the table after each statement.
_KNOWN = (
    ("INSERT INTO {t} VALUES (10, 1), (11, 2)", 12),
    ("INSERT INTO {t} SELECT id, 1 FROM range(1000)", 1012),
    ("INSERT INTO {t} SELECT id, id FROM range(1000000000) LIMIT 5", 1017),
    ("INSERT INTO {t} SELECT id, k FROM cached_rows", 1117),
    ("INSERT OVERWRITE {t} SELECT k, max(id) FROM cached_rows GROUP BY k", 3),
    ("DELETE FROM {t} WHERE id = 1", 2),
)


@pytest.mark.parametrize("using", _FORMATS)
def test_a_write_whose_rows_are_known_to_be_few_needs_no_writer(spark: SparkSession, using: str) -> None:
    table = _table(spark, using, "known")
    cached = spark.range(100).selectExpr("id", "id % 3 AS k").cache()
    cached.createOrReplaceTempView("cached_rows")
    assert cached.count() == 100
    for statement, count in _KNOWN:
        spark.sql(statement.format(t=table))
        assert spark.table(table).count() == count, statement
    spark.sql(f"CREATE TABLE {table}_made USING {using} AS SELECT id, 1 AS k FROM range(7)")
    assert spark.table(f"{table}_made").count() == 7
    cached.unpersist()


@pytest.mark.parametrize("using", _FORMATS)
def test_other_writes_use_the_writer(spark: SparkSession, using: str) -> None:
    table = _table(spark, using, "others")
    many, unknown = "SELECT id, id FROM range(100000)", "SELECT explode(sequence(id, id + 3)) AS i, id FROM range(10)"
    # Nothing has filled this cache yet, so its size is unknown.
    spark.sql(unknown).cache().createOrReplaceTempView("unknown_rows")
    cases = (("1m", many), ("1m", unknown), ("1m", "SELECT * FROM unknown_rows"), ("0", "VALUES (1, 1)"))
    for limit, rows in cases:
        with runtime_confs(spark, {_LIMIT: limit}), pytest.raises(_FAILURES, match=r"127\.0\.0\.1:1"):
            spark.sql(f"INSERT INTO {table} {rows}")
    with runtime_confs(spark, {_LIMIT: "small"}), pytest.raises(_FAILURES, match=_LIMIT):
        spark.sql(f"INSERT INTO {table} VALUES (1, 1)")
    assert spark.table(table).count() == 10
    spark.table("unknown_rows").unpersist()


@pytest.mark.parametrize("using", _FORMATS)
def test_explain_gives_the_planned_size(spark: SparkSession, using: str) -> None:
    table = _table(spark, using, "explained")
    with runtime_confs(spark, {_LIMIT: "64k"}):
        (few,) = spark.sql(f"EXPLAIN INSERT INTO {table} SELECT id, id FROM range(1000)").first() or ("",)
        (many,) = spark.sql(f"EXPLAIN INSERT INTO {table} SELECT id, id FROM range(10000)").first() or ("",)
    assert re.search(rf"because of the planned size of \d+ bytes, less than {_LIMIT} = 65536", few)
    assert "because of" not in many


def test_the_stage_of_a_small_write_of_delta_has_the_reason(spark: SparkSession) -> None:
    spark.sql(f"INSERT INTO {_table(spark, 'delta', 'stage')} SELECT id, 1L FROM range(0, 1024, 1, 1)")
    beginning = "updraft writer: files by Spark's own writer, because of the planned size of "

    def files() -> list[str]:
        return [
            count
            for stage in stages(spark)
            for name, count in stage.accumulators.items()
            if name.startswith(beginning) and name.endswith(f"{_LIMIT} = {1 << 20}")
        ]

    until("the stage has its counters", lambda: "1" in files())
