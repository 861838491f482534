# SPDX-License-Identifier: Apache-2.0
"""Job of the soak, each row of which contains its origin: tenant, application, task, attempt, number and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.invariants import WRONG, Invariants, Rows, Source, runs

ROWS = 20_000
TENANT = "soak"
PARTITIONS = 4
PRIME = 1_000_003
_GROUPS = 97
ANSWER = "tenant string, application string, task bigint, number bigint, value bigint, attempt bigint"
NAMES = [column.split()[0] for column in ANSWER.split(", ")]
BY_PARTITION = dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)
"""Number of rows in each task if each partition is a task."""
BY_GROUP = {group: len(range(group, ROWS, _GROUPS)) for group in range(_GROUPS)}
"""Number of rows in each task if each group is a task."""


class Job:
    """One job of the soak, with its own application id. All rows of the job must carry this id."""

    def __init__(self, spark: SparkSession, number: int, directory: Path) -> None:
        self.spark = spark
        self.salt = number
        self.application = f"{spark.sparkContext.applicationId}-{number}"
        self.directory = directory / f"written-{number}"

    def partitions(self, count: int = PARTITIONS) -> DataFrame:
        """Return the rows in the order of the tasks. With `PARTITIONS` partitions, each partition is a task."""
        size = ROWS // PARTITIONS
        return self._described(self._numbers(count), F.floor(F.col("id") / size), F.col("id") % size + 1)

    def groups(self, numbers: DataFrame | None = None) -> DataFrame:
        """Return the rows, in which each group is a task. The rows are made from `numbers`, which start at 0."""
        numbers = self._numbers() if numbers is None else numbers
        number = F.col(numbers.columns[0])
        return self._described(numbers, number % _GROUPS, F.floor(number / _GROUPS) + 1)

    def answered(self, answer: pa.Table, tasks: Mapping[int, int], invariants: Invariants) -> int:
        """Check that an answer contains the expected rows of each task. Return the number of rows in the answer."""
        for task, rows in tasks.items():
            invariants.begins(self._source_of(task), rows)
        for run in described(answer, self.salt):
            invariants.delivered(run.source, run)
        for task in tasks:
            invariants.ends(self._source_of(task))
        return int(answer.num_rows)

    def written(self, invariants: Invariants) -> int:
        """Check the job's files, one for each partition. Return the number of rows in the files."""
        count = 0
        names = {task: f"{self.application}/part-{task:05}" for task in range(PARTITIONS)}
        for task, name in names.items():
            invariants.finished(name, self._source_of(task), ROWS // PARTITIONS)
        for path in sorted(self.directory.glob("part-*.parquet")):
            content = _read(path, self.salt)
            invariants.published(f"{self.application}/{path.name[:10]}", content)
            count += sum(run.last - run.first + 1 for run in content)
        for name in names.values():
            invariants.confirmed(name)
        return count

    def _numbers(self, partitions: int = PARTITIONS) -> DataFrame:
        return self.spark.range(0, ROWS, 1, partitions)

    def _described(self, rows: DataFrame, task: Column, number: Column) -> DataFrame:
        owner = [F.lit(TENANT).alias("tenant"), F.lit(self.application).alias("application")]
        described = [task.cast("bigint").alias("task"), number.cast("bigint").alias("number")]
        return rows.select(*owner, *described)

    def _source_of(self, task: int) -> Source:
        return Source(TENANT, self.application, str(task))


def _read(path: Path, salt: int) -> list[Rows]:
    """Return the rows of a file; an empty list if it is not a Parquet file."""
    try:
        return list(described(pq.read_table(path), salt))
    except pa.ArrowInvalid:
        return []


def described(answer: pa.Table, salt: int) -> Iterator[Rows]:
    """Yield the origins that the rows of an answer contain, in order. If a value is wrong, the number becomes WRONG."""
    tasks, numbers, values, attempts = (
        pc.fill_null(answer[name], WRONG).to_numpy() for name in ("task", "number", "value", "attempt")
    )
    numbers = np.where(values == value(tasks, numbers, salt), numbers, WRONG)
    columns = [answer["tenant"].to_numpy(), answer["application"].to_numpy(), tasks, attempts]
    for begin, end in runs(numbers, *columns):
        tenant, application, task, attempt = (column[begin] for column in columns)
        yield Rows(Source(tenant, application, str(task)), int(attempt), int(numbers[begin]), int(numbers[end]))


def value(task: Any, number: Any, salt: int) -> Any:
    """Return the result that the functions must return for a row, or for an array or column of rows."""
    return ((task * ROWS + number) * 31 + salt) % PRIME


def attempt() -> int:
    """Return the number of the current attempt at the task that calls this function."""
    context = TaskContext.get()
    assert context is not None
    return int(context.attemptNumber())
