# SPDX-License-Identifier: Apache-2.0
"""Commands of Spark's own catalogs and sources with a Python function inside work as on stock.

`tests/tables` covers those of Delta, Iceberg and Hive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.sides import Sides
from tests.support.commands import Command, Place, assert_same_outcome, register_functions
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, SPARK_VERSION, flight_operators, runtime_confs, stock_operators

_NUMBERS = "SELECT id, id * 10 AS x, id % 2 AS k FROM range(5)"
_RESULTS = f"SELECT f(id) AS id, x, k FROM ({_NUMBERS})"
_TABLE = (f"CREATE TABLE {{t}} USING parquet AS {_NUMBERS}",)
_PARTITIONED = (f"CREATE TABLE {{t}} USING parquet PARTITIONED BY (k) AS {_NUMBERS}",)
_NONE = "SELECT 1"
_DERBY = "jdbc:derby:memory:commands;create=true"
# Spark 3.5 brings Derby 10.14, whose driver is in another package.
_DERBY_DRIVER = f"org.apache.derby{'.iapi' if SPARK_VERSION >= (4, 0) else ''}.jdbc.AutoloadedDriver"


def _results(spark: SparkSession) -> DataFrame:
    return spark.sql(_RESULTS)


def _saved(mode: str, **options: str) -> Callable[[SparkSession, Place], object]:
    def save(spark: SparkSession, place: Place) -> object:
        return _results(spark).write.mode(mode).options(**options).saveAsTable(place.table)

    return save


def _files(format_of: str) -> Callable[[SparkSession, Place], object]:
    def save(spark: SparkSession, place: Place) -> object:
        return _results(spark).write.format(format_of).partitionBy("k").save(f"{place.directory}/out")

    return save


def _jdbc(mode: str) -> Callable[[SparkSession, Place], object]:
    def save(spark: SparkSession, place: Place) -> object:
        table = place.table.upper()
        _results(spark).write.jdbc(_DERBY, table, mode=mode)
        return sorted(map(tuple, spark.read.jdbc(_DERBY, table).collect()))

    return save


def _stream(spark: SparkSession, place: Place) -> Any:
    spark.sql(_NUMBERS).write.parquet(f"{place.directory}/source")
    rows = spark.readStream.schema("id bigint, x bigint, k bigint").parquet(f"{place.directory}/source")
    writer = rows.selectExpr("f(id) AS id", "x").writeStream.trigger(availableNow=True)
    return writer.option("checkpointLocation", f"{place.directory}/checkpoint")


def _stream_to_memory(spark: SparkSession, place: Place) -> object:
    return _stream(spark, place).format("memory").queryName(place.table).start().awaitTermination(250)


def _stream_to_files(spark: SparkSession, place: Place) -> object:
    return _stream(spark, place).format("parquet").start(f"{place.directory}/out").awaitTermination(250)


def _stream_to_a_table(spark: SparkSession, place: Place) -> object:
    return _stream(spark, place).toTable(place.table).awaitTermination(250)


def _stream_of_batches(spark: SparkSession, place: Place) -> object:
    def insert(batch: DataFrame, _: int) -> None:
        batch.selectExpr("f(id) AS id", "x", "x AS k").write.insertInto(place.table)

    return _stream(spark, place).foreachBatch(insert).start().awaitTermination(250)


def _cached_table(kind: str) -> Callable[[SparkSession, Place], object]:
    def cache(spark: SparkSession, place: Place) -> object:
        spark.sql(f"CACHE {kind} {place.table} AS {_RESULTS}")
        rows = sorted(map(tuple, spark.table(place.table).collect()))
        # Otherwise the other side's query would read this cache.
        spark.sql(f"UNCACHE TABLE {place.table}")
        return rows

    return cache


def _cached_frame(spark: SparkSession, place: Place) -> object:
    frame = _results(spark).cache()
    frame.createOrReplaceTempView(place.table)
    counted = frame.count()
    frame.unpersist(blocking=True)
    return counted


def _checkpointed(spark: SparkSession, place: Place) -> object:
    return _results(spark).localCheckpoint()


def _declared_variable(spark: SparkSession, place: Place) -> object:
    spark.sql("DECLARE OR REPLACE VARIABLE number_of_commands BIGINT")
    spark.sql("SET VARIABLE number_of_commands = (SELECT max(f(id)) FROM range(4))")
    return spark.sql("SELECT number_of_commands")


_OUT = "SELECT * FROM parquet.`{d}/out`"
COMMANDS: dict[str, Command] = {
    "ctas": Command("CREATE TABLE {t} USING parquet AS " + _RESULTS),
    "ctas_partitioned": Command("CREATE TABLE {t} USING orc PARTITIONED BY (k) AS " + _RESULTS),
    "ctas_of_a_table_that_exists": Command("CREATE TABLE {t} USING parquet AS " + _RESULTS, _TABLE, calls=False),
    "ctas_location": Command("CREATE TABLE {t} USING json LOCATION '{d}/out' AS " + _RESULTS),
    "rtas": Command("CREATE OR REPLACE TABLE {t} USING parquet AS " + _RESULTS, _TABLE, calls=False),
    "insert": Command("INSERT INTO {t} " + _RESULTS, _TABLE),
    "insert_values": Command("INSERT INTO {t} VALUES (f(4L), 1L, 1L)", _TABLE, calls=False),
    "insert_by_name": Command(f"INSERT INTO {{t}} BY NAME SELECT x, k, f(id) AS id FROM ({_NUMBERS})", _TABLE),
    "insert_into_a_partition": Command(
        f"INSERT INTO {{t}} PARTITION (k = 7) SELECT f(id), x FROM ({_NUMBERS})", _PARTITIONED
    ),
    "insert_overwrite": Command("INSERT OVERWRITE {t} " + _RESULTS, _TABLE),
    "insert_overwrite_dynamic_partitions": Command(
        f"INSERT OVERWRITE {{t}} PARTITION (k) SELECT id, x, f(k) FROM ({_NUMBERS})", _PARTITIONED
    ),
    "insert_overwrite_directory": Command("INSERT OVERWRITE DIRECTORY '{d}/out' USING parquet " + _RESULTS, left=_OUT),
    "insert_from_a_table": Command(f"FROM ({_NUMBERS}) n INSERT INTO {{t}} SELECT f(n.id), x, k", _TABLE),
    "insert_that_fails": Command(
        "INSERT INTO {t} SELECT f(assert_true(id > 9)), 1, 1 FROM range(2)", _TABLE, calls=False
    ),
    "delete": Command("DELETE FROM {t} WHERE big(id)", _TABLE, calls=False),
    "update": Command("UPDATE {t} SET x = f(x) WHERE big(id)", _TABLE, calls=False),
    "merge": Command(
        "MERGE INTO {t} t USING (SELECT f(id) AS id FROM range(4)) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        _TABLE,
        calls=False,
    ),
    "add_a_default": Command("ALTER TABLE {t} ADD COLUMN y BIGINT DEFAULT f(1L)", _TABLE, calls=False),
    "drop_a_partition": Command("ALTER TABLE {t} DROP PARTITION (k = f(0L))", _PARTITIONED, calls=False),
    "save_as_table": Command(_saved("errorifexists")),
    "save_as_table_overwrite": Command(_saved("overwrite"), _TABLE),
    "save_as_table_append": Command(_saved("append", format="parquet"), _TABLE),
    "save_as_table_ignore": Command(_saved("ignore"), _TABLE, calls=False),
    "insert_into_api": Command(lambda spark, place: _results(spark).write.insertInto(place.table), _TABLE),
    "write_to": Command(lambda spark, place: _results(spark).writeTo(place.table).append(), _TABLE, calls=False),
    "write_to_create": Command(lambda spark, place: _results(spark).writeTo(place.table).using("parquet").create()),
    "files_parquet": Command(_files("parquet"), left=_OUT),
    "files_csv": Command(_files("csv"), left="SELECT * FROM csv.`{d}/out`"),
    "noop": Command(lambda spark, _: _results(spark).write.format("noop").mode("overwrite").save(), left=_NONE),
    "jdbc": Command(_jdbc("errorifexists"), left=_NONE),
    "jdbc_append": Command(_jdbc("append"), left=_NONE),
    "jdbc_catalog_ctas": Command("CREATE TABLE derby.APP.{t} AS " + _RESULTS, left="SELECT * FROM derby.APP.{t}"),
    "jdbc_catalog_insert": Command(
        "INSERT INTO derby.APP.{t} SELECT f(id) FROM range(3)",
        ("CREATE TABLE derby.APP.{t} (id BIGINT)",),
        left="SELECT * FROM derby.APP.{t}",
    ),
    "jdbc_catalog_delete": Command(
        "DELETE FROM derby.APP.{t} WHERE big(id)", ("CREATE TABLE derby.APP.{t} (id BIGINT)",), left=_NONE, calls=False
    ),
    "jdbc_catalog_update": Command(
        "UPDATE derby.APP.{t} SET id = f(id)", ("CREATE TABLE derby.APP.{t} (id BIGINT)",), left=_NONE, calls=False
    ),
    "view": Command("CREATE VIEW {t} AS " + _RESULTS, calls=False),
    "temporary_view": Command("CREATE TEMPORARY VIEW {t} AS " + _RESULTS),
    "cache_table": Command(_cached_table("TABLE")),
    "cache_lazy_table": Command(_cached_table("LAZY TABLE")),
    "cached_frame": Command(_cached_frame),
    "checkpoint": Command(_checkpointed, left=_NONE),
    "describe_query": Command("DESCRIBE QUERY " + _RESULTS, left=_NONE, calls=False),
    "analyze": Command("ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS", _TABLE, calls=False),
    "set_variable": Command(_declared_variable, left=_NONE, since=(4, 0)),
    "execute_immediate": Command(
        "EXECUTE IMMEDIATE 'SELECT f(id) AS y FROM range(3) WHERE id < ?' USING 2L", left=_NONE, since=(4, 0)
    ),
    "sql_function": Command(
        "CREATE TEMPORARY FUNCTION {t}_g(a BIGINT) RETURNS BIGINT RETURN f(a)", left=_NONE, calls=False, since=(4, 0)
    ),
    "pipe": Command(f"FROM ({_NUMBERS}) |> EXTEND f(id) AS y |> WHERE big(y)", left=_NONE, since=(4, 0)),
    "stream_to_memory": Command(_stream_to_memory),
    "stream_to_files": Command(_stream_to_files, left=_OUT),
    "stream_to_a_table": Command(_stream_to_a_table),
    "stream_of_batches": Command(_stream_of_batches, _TABLE),
}


@pytest.fixture(scope="module", autouse=True)
def functions(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    register_functions(spark)
    spark.conf.set("spark.sql.catalog.derby", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    spark.conf.set("spark.sql.catalog.derby.url", _DERBY)
    spark.conf.set("spark.sql.catalog.derby.driver", _DERBY_DRIVER)
    spark.sql(f"CREATE DATABASE commands LOCATION '{tmp_path_factory.mktemp('commands')}'")
    spark.sql("USE commands")
    yield
    spark.sql("USE default")
    spark.sql("DROP DATABASE commands CASCADE")
    for view in spark.sql("SHOW VIEWS").collect():
        if view.viewName.startswith("command_"):
            spark.catalog.dropTempView(view.viewName)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_what_it_does_on_stock(
    spark: SparkSession, pool: LocalPool | None, tmp_path: Path, name: str
) -> None:
    if pool is None:
        pytest.skip("these tests are about Updraft alone")
    needs_spark(COMMANDS[name].since, f"such SQL: {name}")
    assert_same_outcome(spark, pool, COMMANDS[name], tmp_path, f"command_{name}")


def test_explain_shows_where_a_commands_functions_run(sides: Sides, spark: SparkSession) -> None:
    if sides.compares_stock_with_itself:
        pytest.skip("these tests are about Updraft alone")
    spark.sql("CREATE TABLE command_explained (id BIGINT, x BIGINT, k BIGINT) USING parquet")
    # CODEGEN shows only generated code, which a command does not have.
    shown = {mode: mode != "CODEGEN" for mode in ("", "EXTENDED", "CODEGEN", "COST", "FORMATTED")}
    confs = {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}
    with runtime_confs(spark, confs):
        for mode, shows in shown.items():
            (row,) = spark.sql(f"EXPLAIN {mode} INSERT INTO command_explained {_RESULTS}").collect()
            physical = row.plan.partition("== Physical Plan ==")[2]
            assert not shows or flight_operators(physical), mode
            assert not stock_operators(physical), mode
