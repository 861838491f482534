# SPDX-License-Identifier: Apache-2.0
"""Cases with table functions: UDTFs of every kind, called for each row or over a table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tests.programs.bench.case import Case, Scene
from tests.programs.bench.targets import PYTHON_ROWS

_ROWS_OF_PARTITION = 1000


class _TwoRows:
    """Table function for a lateral join, which returns two rows for each row."""

    def eval(self, number: int) -> Iterator[tuple[int]]:
        yield (number,)
        yield (-number,)


class _SumOfPartition:
    """Table function with a TABLE argument, which returns one row for each partition of the table."""

    def __init__(self) -> None:
        self._sum = 0

    def eval(self, row: Row) -> None:
        self._sum += row["id"]

    def terminate(self) -> Iterator[tuple[int]]:
        yield (self._sum,)


class _AddOne:
    """Table function with a TABLE argument in Arrow batches."""

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"x": pc.add(batch.column("id"), 1)})


def _lateral(scene: Scene, *, arrow: bool) -> DataFrame:
    scene.spark.udtf.register("two_rows", F.udtf(_TwoRows, returnType="x bigint", useArrow=arrow))
    scene.numbers().createOrReplaceTempView("numbers")
    return scene.spark.sql("SELECT id, x FROM numbers, LATERAL two_rows(id)")


def _partitioned(scene: Scene, *, arrow: bool) -> DataFrame:
    function = F.udtf(_SumOfPartition, returnType="x bigint", useArrow=arrow)
    table = scene.grouped(max(1, scene.rows // _ROWS_OF_PARTITION)).asTable().partitionBy("k")
    return function(table)


def _arrow_native(scene: Scene) -> DataFrame:
    function: Any = F.arrow_udtf(_AddOne, returnType="x bigint")
    return function(scene.numbers().asTable())


CASES = [
    Case(
        "udtf_lateral",
        "udtf in a lateral join, two rows each",
        100_000,
        partial(_lateral, arrow=False),
        target=PYTHON_ROWS,
    ),
    Case(
        "udtf_arrow_lateral", "Arrow udtf in a lateral join", 100_000, partial(_lateral, arrow=True), target=PYTHON_ROWS
    ),
    Case(
        "udtf_partitions",
        "udtf over a partitioned table",
        100_000,
        partial(_partitioned, arrow=False),
        since=(4, 0),
        target=PYTHON_ROWS,
    ),
    Case(
        "udtf_arrow_partitions",
        "Arrow udtf over a partitioned table",
        100_000,
        partial(_partitioned, arrow=True),
        since=(4, 0),
        target=PYTHON_ROWS,
    ),
    Case("arrow_udtf", "arrow_udtf over a table", 1_000_000, _arrow_native, since=(4, 1)),
]
