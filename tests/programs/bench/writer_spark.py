# SPDX-License-Identifier: Apache-2.0
"""Queries written by Spark's own Parquet writer and by `updraft-parquet` with direct delivery.

One Spark and one writer run on the same machine and disk, and connect over TCP and over a Unix socket. CPU seconds are
those of the driver, its JVM and the writer. A query of expressions computes its rows one by one, which takes much of
the time. A query of a stored table receives batches from Spark's reader, like a job that partitions or compacts.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.programs.bench.writer_record import Measured
from tests.support.cpu import cpu_seconds
from tests.support.spark import local_spark
from tests.support.writer import LocalWriter

PARTITIONS = 4
FORMATS = {"spark": "parquet", "updraft": "updraft-parquet", "updraft unix": "updraft-parquet"}
_ENDPOINT = "spark.updraft.write.endpoint"
QUOTA_MIB = 256
# Row group size for both writers: the size that the quota allows Updraft's writer if two files are open.
ROW_GROUP_BYTES = (QUOTA_MIB << 20) // 8
# Approximate size of a row in Arrow. The exact value does not matter, because both sides use it.
_ROW_BYTES = 90
# Number of warm-up runs of each format, in which the JVM compiles the code of the query.
_RUNS_BEFORE = 2
_CONFS = {
    "spark.updraft.write.unsupported": "fail",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    """Return the columns of the table `mixed`, which Spark generates as it writes."""
    number, noise = F.col("id"), F.xxhash64("id")
    return spark.range(0, rows, 1, PARTITIONS).select(
        "id",
        (noise.bitwiseAND(F.lit((1 << 40) - 1))).alias("key"),
        F.when(number % 20 != 0, F.concat(F.lit("city "), (noise % 50).cast("string"))).alias("city"),
        F.concat(F.lit("customer#"), noise.cast("string")).alias("name"),
        (number * 7 % 12).cast("int").alias("code"),
        F.when(number % 20 != 1, F.abs(noise % 100).cast("int")).alias("quantity"),
        (F.abs(noise % 50_000) / 100).alias("amount"),
        (noise / float(1 << 62)).alias("score"),
        (F.abs(noise % 30_000) / 100).cast("decimal(9, 2)").alias("price"),
        F.timestamp_micros(F.lit(1_700_000_000_000_000) + number * 1_000_000 + F.abs(noise % 900_000)).alias("at"),
        F.date_add(F.lit("2026-01-01"), F.abs(noise % 365).cast("int")).alias("day"),
        (noise % 3 == 0).alias("flag"),
    )


def measure(directory: Path, *, rows: int, repeat: int) -> Iterator[Measured]:
    """Measure all variants of each query, in turn."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with LocalWriter(directory, arguments=["--quota-bytes", str(QUOTA_MIB << 20)]) as writer:
        spark = local_spark("bench-writer", connector=True, conf=_CONFS)
        try:
            for case, frame in _queries(spark, rows, directory / "stored").items():
                measured = {name: Measured(case, name, rows * _ROW_BYTES, QUOTA_MIB) for name in FORMATS}
                for number in range(_RUNS_BEFORE + repeat):
                    for name, entry in measured.items():
                        over_unix = name.endswith("unix")
                        spark.conf.set(_ENDPOINT, writer.unix_endpoint if over_unix else writer.tcp_endpoint)
                        _run(entry, frame, directory / name, FORMATS[name], counts=number >= _RUNS_BEFORE)
                yield from measured.values()
        finally:
            spark.stop()
    shutil.rmtree(directory)


def _queries(spark: SparkSession, rows: int, stored: Path) -> dict[str, DataFrame]:
    made = rows_of(spark, rows)
    made.write.parquet(str(stored))
    return {"query of expressions": made, "query of a stored table": spark.read.parquet(str(stored))}


def _run(entry: Measured, frame: DataFrame, target: Path, data_source: str, *, counts: bool) -> None:
    # The JVM and the writer are children of this process.
    wall, cpu = time.perf_counter(), cpu_seconds([os.getpid()])
    frame.write.format(data_source).option("parquet.block.size", ROW_GROUP_BYTES).mode("overwrite").save(str(target))
    wall, cpu = time.perf_counter() - wall, cpu_seconds([os.getpid()]) - cpu
    if counts:
        entry.wall_s.append(round(wall, 4))
        entry.cpu_s.append(round(cpu, 4))
        entry.file_bytes = sum(path.stat().st_size for path in target.glob("*.parquet"))
