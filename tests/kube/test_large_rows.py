# SPDX-License-Identifier: Apache-2.0
"""A row larger than a message goes from an executor's pod to a pool or writer, with the memory of its pod."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications.large_rows import large_text
from tests.kube.cluster import Release

_POOL, _WRITER = "pool-default", "writer"
# Larger than the 64 MiB of a message, and small enough for executors of 768 MiB.
_BYTES = 70 << 20


def _rows(spark: SparkSession, text_bytes: int) -> DataFrame:
    return spark.range(0, 1, 1, 1).select(large_text(text_bytes).alias("text"))


def _told(frame: DataFrame) -> Row:
    """Return what is compared of a row, so that the driver need not hold it."""
    (told,) = frame.select(F.length("text").alias("length"), F.md5("text").alias("digest")).collect()
    return told


def test_it_reaches_a_function_in_a_pod_and_comes_back(spark: SparkSession, release: Release) -> None:
    before = release.restarts(_POOL)
    banged = F.udf(lambda text: text + "!", "string", useArrow=True)
    told = _told(_rows(spark, _BYTES).select(banged("text").alias("text")))
    text = ("abcdefg" * 1000 + "0") * -(-_BYTES // 7000) + "!"
    assert (told["length"], told["digest"]) == (len(text), hashlib.md5(text.encode()).hexdigest())
    assert release.restarts(_POOL) == before


def test_it_is_written_and_read(spark: SparkSession, release: Release, tables: Path) -> None:
    before = release.restarts(_WRITER)
    files = str(tables / "large-rows")
    _rows(spark, _BYTES).write.format("updraft-parquet").save(files)
    assert _told(spark.read.parquet(files)) == _told(_rows(spark, _BYTES))
    assert release.restarts(_WRITER) == before
