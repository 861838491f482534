# SPDX-License-Identifier: Apache-2.0
"""Last part of the demo: write the scored flights, partitioned, through a writer, and read them with plain Spark."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.programs.demo import terminal
from tests.support.spark import runtime_confs

_ENDPOINT = "spark.updraft.write.endpoint"
_PARTITION = "month"


def write(spark: SparkSession, scored: DataFrame, path: Path, endpoint: str) -> None:
    """Replace the data at `path` with the scored flights, in a directory for each month."""
    terminal.heading(f'scored.write.format("updraft-parquet").partitionBy("{_PARTITION}")')
    started = time.monotonic()
    with runtime_confs(spark, {_ENDPOINT: endpoint}), terminal.working("scoring and writing"):
        scored.write.format("updraft-parquet").partitionBy(_PARTITION).mode("overwrite").save(str(path))
    seconds = time.monotonic() - started
    files = list(path.rglob("part-*.parquet"))
    size = sum(file.stat().st_size for file in files) / 1e6
    months = len({file.parent for file in files})
    terminal.line(f"{len(files)} files of {months} months, {size:.1f} MB, scored and written in {seconds:.1f} s")


def reads_back(spark: SparkSession, expected: DataFrame, path: Path) -> bool:
    """Check that plain Spark reads from `path` the rows that stock PySpark scored; print and return the result."""
    with terminal.working("reading it back, and scoring once more on stock PySpark"):
        found, wanted = (_digest(frame, expected) for frame in (spark.read.parquet(str(path)), expected))
    same = found == wanted
    terminal.line(
        f"plain Spark reads {found[0]:,} flights, {'the same' if same else 'OTHER'} rows as stock PySpark scores"
    )
    return same


def _digest(frame: DataFrame, like: DataFrame) -> tuple[int, int]:
    """Return the row count and a hash of all values, with the column types of `like` because partitions lose types."""
    columns = [F.col(field.name).cast(field.dataType) for field in like.schema]
    row = frame.agg(F.count("*"), F.bit_xor(F.xxhash64(*columns))).first()
    assert row is not None
    return row[0], row[1]
