# SPDX-License-Identifier: Apache-2.0
"""A columnar child's batches are written as they are, unless something needs single rows; metrics show which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.writer.conftest import UNSUPPORTED
from tests.e2e.writer.written import FAILURES, both, write
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, runtime_confs, wait_for_listeners
from tests.support.sql_tab import last_query, operators_since
from tests.support.waiting import until
from tests.support.writer import LocalWriter

_ROWS = 3_000
# Files begin and end inside batches.
_BATCHES = {
    "spark.sql.parquet.columnarReaderBatchSize": "700",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


@F.arrow_udf(T.LongType(), F.ArrowUDFType.SCALAR)
def plus_one(values: pa.Array) -> pa.Array:
    return pc.add(values, 1)


@F.arrow_udf(T.LongType(), F.ArrowUDFType.SCALAR)
def failing(values: pa.Array) -> pa.Array:
    if pc.max(values).as_py() == _ROWS - 1:
        raise ValueError("boom")
    return values


@pytest.fixture(scope="module", autouse=True)
def with_a_pool(spark: SparkSession, pool: LocalPool) -> Iterator[None]:
    with runtime_confs(spark, {**_BATCHES, ENDPOINT: pool.tcp_endpoint}):
        yield


@pytest.fixture(scope="module")
def scan(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Return a scan of two files of numbers, texts with nulls, and lists."""
    path = str(tmp_path_factory.mktemp("scanned") / "data")
    spark.range(0, _ROWS, 1, 2).select(
        "id",
        F.when(F.col("id") % 7 != 0, F.sha1(F.col("id").cast("string"))).alias("text"),
        F.array("id", F.lit(None)).alias("list"),
    ).write.parquet(path)
    return spark.read.parquet(path)


def _plan_of_last_write(spark: SparkSession) -> str:
    """Return the plan of the last query that Spark ran."""
    wait_for_listeners(spark)
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    last = max((found.apply(index) for index in range(found.size())), key=lambda execution: execution.executionId())
    return str(last.physicalPlanDescription())


WHOLE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a scan": lambda scan: scan,
    "a function": lambda scan: scan.withColumn("more", plus_one("id")),
    "a function of rows": lambda scan: scan.where("id % 3 = 0").withColumn("more", plus_one("id")),
    "chosen columns": lambda scan: scan.select(F.col("text").alias("t"), plus_one("id").alias("n"), "id", "text"),
    "no rows": lambda scan: scan.where("id < 0").select(plus_one("id").alias("n")),
}


@pytest.mark.parametrize("case", WHOLE)
def test_batches_are_written_without_becoming_rows(
    spark: SparkSession, scan: DataFrame, place: Path, case: str
) -> None:
    stock, ours = both(WHOLE[case](scan), place, "updraft-orc" if case == "a function" else "updraft-parquet")
    plan = _plan_of_last_write(spark)
    assert "WriterInput batches" in plan, plan
    assert ours.layout() == stock.layout()
    assert ours.rows(spark) == stock.rows(spark)


def test_expressions_and_partitions_look_at_rows(spark: SparkSession, scan: DataFrame, place: Path) -> None:
    stock, ours = both(scan.select((F.col("id") + 1).alias("next"), "text"), place)
    assert "WriterInput rows" in _plan_of_last_write(spark)
    assert ours.rows(spark) == stock.rows(spark)
    frame = scan.select("text", (F.col("id") % 3).alias("k"))
    for name, format_name in (("stock", "parquet"), ("updraft", "updraft-parquet")):
        frame.write.format(format_name).partitionBy("k").save(str(place / f"partitioned {name}"))
    assert "WriterInput rows" in _plan_of_last_write(spark)
    read = [spark.read.parquet(str(place / f"partitioned {name}")) for name in ("stock", "updraft")]
    assert sorted(map(str, read[0].collect())) == sorted(map(str, read[1].collect()))


def test_a_file_may_end_inside_of_a_batch(spark: SparkSession, scan: DataFrame, place: Path) -> None:
    confs = {"spark.updraft.write.batchBytes": "8k"}
    with runtime_confs(spark, confs):
        stock, ours = both(scan.withColumn("more", plus_one("id")), place, maxRecordsPerFile="301")
    assert "WriterInput batches" in _plan_of_last_write(spark)
    assert ours.layout() == stock.layout()
    assert ours.arrow_rows() == stock.arrow_rows()


def test_sparks_own_writer_reads_batches_as_rows(spark: SparkSession, scan: DataFrame, place: Path) -> None:
    with runtime_confs(spark, {UNSUPPORTED: "local", "spark.sql.parquet.writeLegacyFormat": "true"}):
        stock, ours = both(scan.select("text", "list", plus_one("id").alias("n")), place)
    assert "WriterInput batches" in _plan_of_last_write(spark)
    assert all(creator.startswith("parquet-mr") for creator in ours.created_by())
    assert ours.rows(spark) == stock.rows(spark)


def test_a_function_that_fails_leaves_no_file(
    spark: SparkSession, writer: LocalWriter, scan: DataFrame, place: Path
) -> None:
    with pytest.raises(FAILURES, match="boom"):
        write(scan.withColumn("more", failing("id")), place / "data", "updraft-parquet")
    writer.becomes_empty()
    assert not list((place / "data").rglob("*.parquet*"))


@pytest.mark.parametrize("case", ["a scan", "an expression"])
def test_the_sql_tab_shows_what_the_files_cost(spark: SparkSession, scan: DataFrame, place: Path, case: str) -> None:
    frame = scan if case == "a scan" else scan.select(F.upper("text").alias("text"))
    before = last_query(spark)
    written = write(frame, place / "data", "updraft-parquet", **{"parquet.block.size": str(32 << 10)})

    def shown() -> dict[str, str] | None:
        inputs = [found for found in operators_since(spark, before) if found.name.startswith("WriterInput")]
        return next((found.metrics for found in inputs if "files" in found.metrics), None)

    texts = until("the metrics are there", shown)
    assert texts["files"] == str(len(written.files()))
    assert int(texts["row groups"]) == sum(pq.read_metadata(path).num_row_groups for path in written.files())
    times = {
        f"time {what}" for what in ("throttled by the quota", "spent encoding", "spent storing", "that tasks waited")
    }
    assert times | {"bytes of rows", "bytes of files"} <= texts.keys()
