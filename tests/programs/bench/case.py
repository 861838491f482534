# SPDX-License-Identifier: Apache-2.0
"""Benchmark cases. A case is a query over a number of rows, with the inputs from which the case builds the query.

`cases/` declares the cases, `driver.py` runs them in a Spark process, and `udf.py` compares the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.programs.bench.tables import PARTITIONS, Table
from tests.programs.bench.targets import LIGHT, Target
from tests.programs.bench.variants import Variant

MILLION = 1_000_000

Use = Callable[[Any], Callable[..., Column]]


@dataclass(frozen=True)
class Scene:
    """Inputs of a query. `use` returns the scalar UDF that it receives, or a replacement to measure Spark alone."""

    spark: SparkSession
    directory: Path
    rows: int
    use: Use

    def numbers(self, partitions: int = PARTITIONS) -> DataFrame:
        """Return a table with a column `id`, which Spark generates as it runs."""
        return self.spark.range(0, self.rows, 1, partitions)

    def grouped(self, groups: int) -> DataFrame:
        """Return `id`, a key `k` with `groups` values in rotation, and a number `v`."""
        value = (F.col("id") * 7919 % 1000).cast("double")
        return self.numbers().select("id", (F.col("id") % groups).alias("k"), value.alias("v"))

    def stored(self, table: Table) -> DataFrame:
        """Return a Parquet table."""
        return self.spark.read.parquet(str(table.path(self.directory, self.rows)))

    def streamed(self, table: Table) -> DataFrame:
        """Return a Parquet table as a stream with one micro-batch for each file."""
        reader = self.spark.readStream.schema(self.stored(table).schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(table.path(self.directory, self.rows)))


@dataclass(frozen=True)
class Case:
    """One query of the benchmark.

    Attributes:
        vectors: whether Spark can pass this kind of input to a function as vectors.
        has_floor: whether the query can be built without its UDF, to measure Spark's own cost.
        cores: number of tasks that Spark runs at once.
        confs: settings of the connector for this case.
    """

    name: str
    title: str
    rows: int
    build: Callable[[Scene], DataFrame]
    table: Table | None = None
    vectors: bool = False
    has_floor: bool = False
    cores: int = 2
    since: tuple[int, int] = (3, 5)
    target: Target = LIGHT
    confs: Mapping[str, str] = field(default_factory=dict, hash=False)

    def runs_as(self, variant: Variant) -> bool:
        """Return whether a variant runs this case; a variant that would equal another variant does not."""
        return (self.vectors or not variant.needs_vectors) and (self.has_floor or variant.runs_udf)

    def scaled(self, scale: float) -> int:
        """Return the number of rows at this scale."""
        return max(1, int(self.rows * scale))


def with_udf(function: Any) -> Callable[..., Column]:
    """Return the UDF unchanged."""
    return function  # type: ignore[no-any-return]


def without_udf(function: Any) -> Callable[..., Column]:
    """Return a replacement for the UDF, which returns its first argument."""
    return lambda column, *_: F.col(column)
