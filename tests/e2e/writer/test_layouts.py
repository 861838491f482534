# SPDX-License-Identifier: Apache-2.0
"""Spark's own file layouts, with files that the writer made: partitions, buckets, modes, tables, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from tests.e2e.writer.conftest import DELIVERY, ENDPOINT
from tests.e2e.writer.written import STOCK, Written, rows, write
from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter

_ROWS = 2000
_AWKWARD = ["a b", "x=1/2", "50%", "ü#?", None, ""]

Layout = Callable[[DataFrameWriter], DataFrameWriter]
LAYOUTS: dict[str, Layout] = {
    "plain": lambda writer: writer,
    "partitioned": lambda writer: writer.partitionBy("name", "k"),
    "few records a file": lambda writer: writer.option("maxRecordsPerFile", 300),
}


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    names = F.array(*[F.lit(name) for name in _AWKWARD])
    return spark.range(0, _ROWS, 1, 2).select(
        "id",
        F.element_at(names, (F.col("id") % len(_AWKWARD) + 1).cast("int")).alias("name"),
        (F.col("id") % 2).cast("int").alias("k"),
        F.sha1(F.col("id").cast("string")).alias("text"),
    )


@pytest.mark.parametrize("delivery", ["direct", "return"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_lie_where_sparks_own_lie(
    spark: SparkSession, frame: DataFrame, place: Path, layout: str, delivery: str
) -> None:
    with runtime_confs(spark, {DELIVERY: delivery}):
        for name, format_name in (("stock", "parquet"), ("updraft", "updraft-parquet")):
            LAYOUTS[layout](frame.write.format(format_name)).save(str(place / name))
    stock, ours = Written(place / "stock"), Written(place / "updraft")
    assert "_SUCCESS" in ours.layout()
    assert ours.layout() == stock.layout()
    assert ours.rows(spark) == stock.rows(spark) != []


def test_several_partitions_can_be_open_at_once(spark: SparkSession, frame: DataFrame, place: Path) -> None:
    with runtime_confs(spark, {"spark.sql.maxConcurrentOutputFileWriters": "4"}):
        frame.write.format("updraft-parquet").partitionBy("name").save(str(place / "updraft"))
    frame.write.partitionBy("name").parquet(str(place / "stock"))
    assert Written(place / "updraft").rows(spark) == Written(place / "stock").rows(spark)


def test_a_writer_of_the_same_machine_is_reached_over_its_unix_socket(
    spark: SparkSession, writer: LocalWriter, frame: DataFrame, place: Path
) -> None:
    with runtime_confs(spark, {ENDPOINT: writer.unix_endpoint}):
        written = write(frame, place / "data", "updraft-parquet")
    assert written.rows(spark) == rows(frame)


def test_save_modes_are_sparks(spark: SparkSession, place: Path) -> None:
    path = str(place / "data")

    def save(mode: str, start: int) -> None:
        spark.range(start, start + 3).write.format("updraft-parquet").mode(mode).save(path)

    save("errorifexists", 0)
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        save("errorifexists", 10)
    save("ignore", 20)
    save("append", 30)
    assert sorted(row.id for row in spark.read.parquet(path).collect()) == [0, 1, 2, 30, 31, 32]
    save("overwrite", 40)
    assert sorted(row.id for row in spark.read.parquet(path).collect()) == [40, 41, 42]


def test_a_dynamic_overwrite_replaces_only_its_own_partitions(spark: SparkSession, place: Path) -> None:
    path = str(place / "data")

    def save(start: int, keys: int) -> None:
        frame = spark.range(start, start + 4).select("id", (F.col("id") % keys).alias("k"))
        frame.write.format("updraft-parquet").partitionBy("k").mode("overwrite").save(path)

    save(0, 2)
    with runtime_confs(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        save(10, 1)
    assert sorted((row.k, row.id) for row in spark.read.parquet(path).collect()) == [
        *((0, value) for value in (10, 11, 12, 13)),
        (1, 1),
        (1, 3),
    ]


@pytest.fixture
def drop_tables(spark: SparkSession) -> Iterator[None]:
    yield
    for table in ("ours", "stock"):
        spark.sql(f"drop table if exists {table}")


@pytest.mark.usefixtures("drop_tables")
@pytest.mark.parametrize("format_name", STOCK)
def test_a_table_is_created_inserted_into_and_read(
    spark: SparkSession, frame: DataFrame, place: Path, format_name: str
) -> None:
    frame.createOrReplaceTempView("frame")
    for table, source in (("ours", format_name), ("stock", STOCK[format_name])):
        spark.sql(
            f"create table {table} using `{source}` partitioned by (k) location '{place / table}' "
            "as select id, text, k from frame where id < 100"
        )
        spark.sql(f"insert into {table} select id, text, k from frame where id between 100 and 200")
        spark.sql(f"insert overwrite {table} partition (k = 1) select id, text from frame where id < 50")
    assert rows(spark.table("ours")) == rows(spark.table("stock")) != []
    assert rows(spark.table("ours").where("k = 1 and id > 40").select("text")) == rows(
        spark.table("stock").where("k = 1 and id > 40").select("text")
    )


@pytest.mark.usefixtures("drop_tables")
def test_buckets_are_read_without_a_shuffle(spark: SparkSession, frame: DataFrame, place: Path) -> None:
    for table, source in (("ours", "updraft-parquet"), ("stock", "parquet")):
        writer = frame.write.format(source).bucketBy(3, "id").sortBy("id").option("path", str(place / table))
        writer.saveAsTable(table)
    assert Written(place / "ours").layout() == Written(place / "stock").layout()
    assert rows(spark.table("ours")) == rows(spark.table("stock"))
    with runtime_confs(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        joined = spark.table("ours").join(spark.table("stock"), "id")
        plan = str(joined._jdf.queryExecution().executedPlan().toString())
        assert "Exchange" not in plan, plan
        assert joined.count() == _ROWS


def test_a_stream_writes_its_files_through_the_writer(spark: SparkSession, frame: DataFrame, place: Path) -> None:
    source = write(frame, place / "source", "parquet")
    stream = spark.readStream.schema(frame.schema).parquet(str(source.path))
    query = (
        stream.writeStream.format("updraft-parquet")
        .partitionBy("k")
        .option("path", str(place / "sink"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(250), "the stream does not end"
    assert rows(spark.read.parquet(str(place / "sink")).select("id", "text")) == rows(frame.select("id", "text"))
    creators = {pq.read_metadata(file).created_by for file in (place / "sink").rglob("*.parquet")}
    assert all(creator.startswith("parquet-cpp") for creator in creators), creators


def test_updraft_formats_are_read_as_sparks_own_are(spark: SparkSession, frame: DataFrame, place: Path) -> None:
    ours = write(frame, place / "ours", "updraft-parquet")
    read = spark.read.format("updraft-parquet").load(str(ours.path)).where("id > 1990")
    plan = str(read._jdf.queryExecution().executedPlan().toString())
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,1990)]" in plan
    assert "ColumnarToRow" in plan
    assert rows(read) == rows(frame.where("id > 1990"))
