# SPDX-License-Identifier: Apache-2.0
"""Small writes of tables are left to the table format's own writer.

The session's writer is away, so a write that would use it fails.
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
        # What the rules forbid is an error. A small write is none.
        "spark.updraft.write.unsupported": "fail",
        _LIMIT: "1m",
    }
    with runtime_confs(spark, confs):
        yield


def _table(spark: SparkSession, using: str, name: str) -> str:
    table = f"iceberg.small.{name}" if using == "iceberg" else f"small_{name}"
    with runtime_confs(spark, {"spark.updraft.write.tables": "none"}):
        spark.sql(f"CREATE OR REPLACE TABLE {table} USING {using} AS SELECT id, id % 3 AS k FROM range(0, 10, 1, 1)")
    return table


@pytest.mark.parametrize("using", _FORMATS)
@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("INSERT INTO {t} VALUES (10, 1), (11, 2)", 12),
        ("INSERT INTO {t} SELECT id, 1 FROM range(1000)", 1010),
        ("INSERT INTO {t} SELECT id, id FROM range(1000000000) LIMIT 5", 15),
        ("INSERT INTO {t} SELECT id, k FROM cached_rows", 110),
        ("INSERT OVERWRITE {t} SELECT k, max(id) FROM cached_rows GROUP BY k", 3),
        ("DELETE FROM {t} WHERE id > 4", 5),
        ("CREATE OR REPLACE TABLE {t} USING {using} AS SELECT id, 1 AS k FROM range(7)", 7),
    ],
    ids=["values", "range", "limit", "cached", "aggregate", "delete", "replace"],
)
def test_a_write_whose_rows_are_known_to_be_few_needs_no_writer(
    spark: SparkSession, using: str, statement: str, count: int
) -> None:
    table = _table(spark, using, "known")
    cached = spark.range(100).selectExpr("id", "id % 3 AS k").cache()
    cached.createOrReplaceTempView("cached_rows")
    spark.sql(statement.format(t=table, using=using))
    assert spark.table(table).count() == count
    cached.unpersist()


@pytest.mark.parametrize("using", _FORMATS)
@pytest.mark.parametrize(
    "rows",
    ["SELECT id, id FROM range(100000)", "SELECT explode(sequence(id, id + 3)), id FROM range(10)"],
    ids=["many rows", "any number of rows"],
)
def test_other_writes_use_the_writer(spark: SparkSession, using: str, rows: str) -> None:
    table = _table(spark, using, "others")
    with pytest.raises(_FAILURES, match=r"127\.0\.0\.1:1"):
        spark.sql(f"INSERT INTO {table} {rows}")
    assert spark.table(table).count() == 10


@pytest.mark.parametrize("using", _FORMATS)
def test_zero_sends_every_write_to_the_writer(spark: SparkSession, using: str) -> None:
    table = _table(spark, using, "zero")
    with runtime_confs(spark, {_LIMIT: "0"}), pytest.raises(_FAILURES, match=r"127\.0\.0\.1:1"):
        spark.sql(f"INSERT INTO {table} VALUES (1, 1)")


@pytest.mark.parametrize("using", _FORMATS)
def test_a_wrong_limit_fails_the_write(spark: SparkSession, using: str) -> None:
    table = _table(spark, using, "wrong")
    with runtime_confs(spark, {_LIMIT: "small"}), pytest.raises(_FAILURES, match=_LIMIT):
        spark.sql(f"INSERT INTO {table} VALUES (1, 1)")


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
