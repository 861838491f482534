# SPDX-License-Identifier: Apache-2.0
"""Contents of a directory that Spark has written, in a form that is equal for two writers of the same rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import canonical

STOCK = {"updraft-parquet": "parquet", "updraft-orc": "orc"}
# Errors that PySpark raises for a failed write, some of which have no class in Python.
FAILURES = (PySparkException, Py4JJavaError)
_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Written:
    """Directory of Parquet or ORC files."""

    path: Path

    def files(self) -> list[Path]:
        """Return the data files."""
        return sorted(path for path in self.path.rglob("part-*") if path.is_file())

    def layout(self) -> list[str]:
        """Return every file's path without the job's number or Hadoop's checksums, which some deliveries lack."""
        paths = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return sorted(_UNIQUE.sub("N", str(path)) for path in paths if path.suffix != ".crc")

    def rows(self, spark: SparkSession) -> list[str]:
        """Return the rows that Spark reads with its own format, sorted."""
        return rows(spark.read.format(self.format).load(str(self.path)))

    def schema(self, spark: SparkSession) -> Any:
        """Return the schema that Spark infers."""
        return spark.read.format(self.format).load(str(self.path)).schema

    @property
    def format(self) -> str:
        """Spark's own name of the format."""
        return self.files()[0].suffix.removeprefix(".")

    def footer(self) -> Mapping[str, str]:
        """Return Spark's keys in a Parquet footer."""
        metadata = pq.read_metadata(self.files()[0]).metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}

    def columns(self) -> list[str]:
        """Return the Parquet schema, column by column."""
        schema = pq.ParquetFile(self.files()[0]).schema
        return [
            f"{c.path}: {c.physical_type} {c.logical_type} {c.max_definition_level} {c.max_repetition_level}"
            for c in (schema.column(index) for index in range(len(schema.names)))
        ]

    def created_by(self) -> set[str]:
        """Return the creators that the Parquet files name."""
        return {pq.read_metadata(path).created_by for path in self.files()}

    def arrow_rows(self) -> list[str]:
        """Return the rows that pyarrow reads, file by file in order of name."""
        tables = (pq.read_table(path, partitioning=None) for path in self.files())
        return [canonical(row) for table in tables for row in (str(table.schema.remove_metadata()), *table.to_pylist())]


def rows(frame: DataFrame) -> list[str]:
    """Return the rows in a form that distinguishes NaN, -0.0 and types, sorted."""
    # PySpark has no Python type for some of Spark's types.
    for field in frame.schema:
        if isinstance(field.dataType, T.YearMonthIntervalType):
            frame = frame.withColumn(field.name, F.col(field.name).cast("string"))
    return sorted(canonical(tuple(row)) for row in frame.collect())


def write(frame: DataFrame, path: Path, format_name: str, **options: str) -> Written:
    """Write into a new directory."""
    frame.write.format(format_name).options(**options).save(str(path))
    return Written(path)


def both(frame: DataFrame, place: Path, name: str = "updraft-parquet", **options: str) -> tuple[Written, Written]:
    """Write the same frame with Spark's own format and with Updraft's."""
    stock = write(frame, place / "stock", STOCK[name], **options)
    return stock, write(frame, place / "updraft", name, **options)
