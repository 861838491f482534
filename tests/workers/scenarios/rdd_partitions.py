# SPDX-License-Identifier: Apache-2.0
"""Partitions that are large, many or empty, with and without reuse of workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Thread
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tests.workers.confs import application_confs
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers

_REUSE = "spark.python.worker.reuse"


@scenario(seconds=150)
def large_partitions(spark: SparkSession) -> Any:
    """Send 100 MB from a worker to Spark and back."""
    made = numbers(spark, 100, 1).map(lambda n: bytes([n]) * (1 << 20)).persist(StorageLevel.DISK_ONLY)
    try:
        return made.map(len).sum(), made.map(lambda data: data[-1]).sum()
    finally:
        made.unpersist(blocking=True)


@scenario(seconds=150)
def large_elements(spark: SparkSession) -> Any:
    made = numbers(spark, 2, 2).map(lambda n: b"x" * (40 << 20)).persist(StorageLevel.DISK_ONLY)
    try:
        return made.map(len).collect()
    finally:
        made.unpersist(blocking=True)


@scenario(seconds=150)
def many_small_elements(spark: SparkSession) -> Any:
    return numbers(spark, 1_000_000, 2).map(lambda n: n + 1).filter(lambda n: n % 3 == 0).count()


@scenario(seconds=150)
def many_small_partitions(spark: SparkSession) -> Any:
    return numbers(spark, 1000, 200).map(lambda n: n * 2).glom().map(len).collect()


@scenario()
def empty_partitions(spark: SparkSession) -> Any:
    empty = spark.sparkContext.parallelize([], 4)
    few = numbers(spark, 3, 8).map(str)
    return empty.map(str).glom().collect(), few.glom().collect(), spark.sparkContext.emptyRDD().map(str).collect()


def _marked(spark: SparkSession, name: str) -> int:
    """Mark the workers of a job, and return how many partitions of the next jobs meet a marked worker."""

    def mark(elements: Iterable[int]) -> Iterator[bool]:
        was_marked = hasattr(json, name)
        setattr(json, name, True)
        yield was_marked

    return sum(sum(numbers(spark, 100, 4).mapPartitions(mark).collect()) for _ in range(4))


@scenario()
def workers_that_are_reused(spark: SparkSession) -> Any:
    with application_confs(spark, {_REUSE: "true"}):
        return _marked(spark, "reused") > 0


@scenario()
def workers_that_are_not_reused(spark: SparkSession) -> Any:
    with application_confs(spark, {_REUSE: "false"}):
        return _marked(spark, "not_reused")


@scenario()
def partitions_that_a_thread_reads_ahead(spark: SparkSession) -> Any:
    """Read the input in one thread while another thread returns the output, as on stock."""

    def read_ahead(elements: Iterable[int]) -> Iterator[int]:
        read: Queue[int | None] = Queue(maxsize=100)

        def fill() -> None:
            for element in elements:
                read.put(element)
            read.put(None)

        Thread(target=fill, daemon=True).start()
        return iter(read.get, None)

    return numbers(spark, 200_000, 2).mapPartitions(read_ahead).map(lambda n: n * 3).sum()


@scenario()
def jobs_at_the_same_time(spark: SparkSession) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    def job(number: int) -> int:
        return int(numbers(spark, 100, 2).map(lambda n: n * number).sum())

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(job, range(12)))


@scenario()
def memory_that_a_function_keeps(spark: SparkSession) -> Any:
    """Keep state in a Python module between the elements of one task."""

    def seen(part: Any) -> Any:
        counts: dict[int, int] = {}
        for number in part:
            counts[number % 3] = counts.get(number % 3, 0) + 1
        yield sorted(counts.items())

    return numbers(spark, 90, 2).mapPartitions(seen).collect()
