# SPDX-License-Identifier: Apache-2.0
"""RDDs that Spark caches, or writes to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from tests.workers.directories import new_directory
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


def _persisted(spark: SparkSession, level: StorageLevel) -> Any:
    runs = spark.sparkContext.accumulator(0)

    def counted(number: int) -> int:
        runs.add(1)
        return number * 3

    rdd = numbers(spark).map(counted).persist(level)
    try:
        return rdd.sum(), rdd.map(str).count(), rdd.collect(), runs.value
    finally:
        rdd.unpersist(blocking=True)


@scenario(everyday=True)
def persist_in_memory(spark: SparkSession) -> Any:
    return _persisted(spark, StorageLevel.MEMORY_ONLY)


@scenario()
def persist_on_disk(spark: SparkSession) -> Any:
    return _persisted(spark, StorageLevel.DISK_ONLY)


@scenario()
def persist_in_both(spark: SparkSession) -> Any:
    return _persisted(spark, StorageLevel.MEMORY_AND_DISK)


@scenario()
def checkpoint(spark: SparkSession) -> Any:
    spark.sparkContext.setCheckpointDir(str(new_directory()))
    rdd = numbers(spark).map(lambda n: n * 3)
    rdd.checkpoint()
    return rdd.sum(), rdd.isCheckpointed(), rdd.map(str).count()


@scenario()
def local_checkpoint(spark: SparkSession) -> Any:
    rdd = numbers(spark).map(lambda n: n * 3)
    rdd.localCheckpoint()
    return rdd.sum(), rdd.isLocallyCheckpointed(), rdd.map(str).count()


@scenario()
def text_files(spark: SparkSession) -> Any:
    path = new_directory() / "texts"
    numbers(spark, 20).map(lambda n: f"line {n}").saveAsTextFile(str(path))
    whole = spark.sparkContext.wholeTextFiles(str(path)).mapValues(len).values()
    lines = spark.sparkContext.textFile(str(path)).map(str.upper)
    return sorted(lines.collect()), sorted(whole.collect())


@scenario()
def compressed_text_files(spark: SparkSession) -> Any:
    path = new_directory() / "texts"
    codec = "org.apache.hadoop.io.compress.GzipCodec"
    numbers(spark, 20).map(str).saveAsTextFile(str(path), compressionCodecClass=codec)
    return sorted(spark.sparkContext.textFile(str(path)).map(int).collect())


@scenario()
def pickle_files(spark: SparkSession) -> Any:
    path = new_directory() / "pickles"
    numbers(spark, 100).map(lambda n: (n, [str(n)])).saveAsPickleFile(str(path), batchSize=7)
    return sorted(spark.sparkContext.pickleFile(str(path), 2).collect())


@scenario()
def sequence_files(spark: SparkSession) -> Any:
    path = new_directory() / "sequence"
    numbers(spark, 30).map(lambda n: (n, f"text {n}")).saveAsSequenceFile(str(path))
    return sorted(spark.sparkContext.sequenceFile(str(path)).mapValues(str.upper).collect())


@scenario()
def binary_files(spark: SparkSession) -> Any:
    directory = new_directory()
    for number in range(5):
        (directory / f"{number}.bin").write_bytes(bytes(range(number * 8)))
    files = spark.sparkContext.binaryFiles(str(directory)).map(lambda file: (Path(file[0]).name, len(file[1])))
    records = spark.sparkContext.binaryRecords(str(directory), 8).map(lambda record: record[0])
    return sorted(files.collect()), sorted(records.collect())


@scenario()
def cloudpickled_elements(spark: SparkSession) -> Any:
    def make(number: int) -> Any:
        return lambda: number * 2

    functions = numbers(spark, 20).map(make)._reserialize(CloudPickleSerializer())
    return functions.map(lambda function: function()).collect()
