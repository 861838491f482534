# SPDX-License-Identifier: Apache-2.0
"""Small local Spark as the oracle of files, and a frame of every type that it writes, ancient dates included."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
# The zones of Java and of the session differ, so that a mix-up shows.
JAVA_ZONE = "America/Los_Angeles"
SESSION_ZONE = "Europe/Prague"

_CONFS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Duser.timezone={JAVA_ZONE} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": SESSION_ZONE,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}
# From year 1 to year 2190, 400 days and some hours apart.
_ROWS = 2000
_DATE = "date_add(DATE'0001-01-01', cast(id * 400 as int))"
_WALL_CLOCK = (
    "TIMESTAMP_NTZ'0001-01-01 00:00:00' + make_dt_interval(cast(id * 400 as int), cast(id as int), 7, 8.123456)"
)
_INSTANT = "timestamp_micros(-62135596800000000 + id * 34563600123456)"
_COLUMNS = {
    "flag": "id % 3 = 0",
    "byte": "cast(id % 256 - 128 as tinyint)",
    "short": "cast(id * 30 - 30000 as smallint)",
    "int": "cast(id * 1000003 - 1000000 as int)",
    "long": "id * 1000000007 * (id % 2 - 1)",
    "float": "cast(id / 7 as float)",
    "double": "id / 7",
    "small_decimal": "cast(id / 7 as decimal(9, 2))",
    "decimal": "cast(-id / 7 as decimal(18, 4))",
    "large_decimal": "cast(id as decimal(38, 10)) / 7",
    "text": "concat('řádek ', cast(id % 50 as string))",
    "bytes": "cast(cast(id as string) as binary)",
    "date": "the_date",
    "instant": "the_instant",
    "wall_clock": "the_wall_clock",
    "list": "array(the_date, NULL, DATE'2026-01-01')",
    "map": "map(cast(id as string), the_instant, 'nothing', NULL)",
    "struct": "named_struct('at', the_instant, 'on', the_date, 'shown', the_wall_clock, 'texts', array('a', NULL))",
    "never_null": "named_struct('n', id, 'inner', named_struct('s', 'text', 'list', array(id), 'map', map(id, id)))",
}


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Run Spark on one core; raise RuntimeError if another Spark runs, whose JVM has another zone."""
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("another Spark runs in this process: run the writer's own tests in a process of theirs")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("writer's oracle")
    for key, value in _CONFS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def confs(spark: SparkSession, changes: Mapping[str, str]) -> Iterator[None]:
    """Set runtime settings for the block and restore them afterwards."""
    before = {key: spark.conf.get(key) for key in changes}
    for key, value in changes.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def everything(spark: SparkSession, *, since: str = "0001-01-01", instant_type: str = "timestamp") -> DataFrame:
    """Return all types, with nulls; dates begin at `since`, and timestamps have the type `instant_type`."""
    columns = [
        f"if(id % 5 = {index % 5}, NULL, {expression}) AS {name}"
        for index, (name, expression) in enumerate(_COLUMNS.items())
    ]
    values = spark.range(_ROWS).selectExpr(
        "id",
        f"{_DATE} AS the_date",
        f"{_WALL_CLOCK} AS the_wall_clock",
        f"cast({_INSTANT} AS {instant_type}) AS the_instant",
    )
    return values.where(f"the_date >= DATE'{since}'").selectExpr("id", *columns).coalesce(1)


def call(spark: SparkSession, name: str) -> Any:
    """Return a Java class of Spark or of a library that it brings."""
    found: Any = spark._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
