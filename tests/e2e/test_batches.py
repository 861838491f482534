# SPDX-License-Identifier: Apache-2.0
"""How many rows a function sees at once is what Spark's own confs say, whatever travels in one message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Sides

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ROWS = 10_001


def _sizes(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield pa.array([len(batch)] * len(batch), pa.int64())


def _sizes_in_pandas(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield pd.Series([len(batch)] * len(batch))


def _column(kind: str) -> Column:
    if kind == "pandas_udf":
        return F.pandas_udf(lambda s: pd.Series([len(s)] * len(s)), "bigint", F.PandasUDFType.SCALAR)("id")
    if kind == "pandas_udf_iterator":
        return F.pandas_udf(_sizes_in_pandas, "bigint", F.PandasUDFType.SCALAR_ITER)("id")
    if kind == "arrow_udf":
        return F.arrow_udf(lambda a: pa.array([len(a)] * len(a), pa.int64()), "bigint", F.ArrowUDFType.SCALAR)("id")
    return F.arrow_udf(_sizes, "bigint", F.ArrowUDFType.SCALAR_ITER)("id")


@pytest.mark.parametrize("max_records", [7, 1000, 10_000])
@pytest.mark.parametrize("kind", ["pandas_udf", "pandas_udf_iterator", "arrow_udf", "arrow_udf_iterator"])
def test_a_function_sees_the_batches_that_stock_gives_it(sides: Sides, kind: str, max_records: int) -> None:
    answer = sides.assert_same(
        lambda spark: spark.range(0, _ROWS, 1, 2).select("id", _column(kind).alias("size")),
        confs={_MAX_RECORDS: str(max_records)},
    )
    assert max(row[1] for row in answer.rows) <= max_records


def test_one_row_at_a_time(sides: Sides) -> None:
    answer = sides.assert_same(
        lambda spark: spark.range(0, 50, 1, 2).select("id", _column("arrow_udf").alias("size")),
        confs={_MAX_RECORDS: "1"},
    )
    assert {row[1] for row in answer.rows} == {1}


@pytest.mark.parametrize("max_records", [7, 1000])
def test_map_in_arrow_sees_batches_within_the_conf(sides: Sides, max_records: int) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.num_rows]})

    answer = sides.assert_same(
        lambda spark: spark.range(0, _ROWS, 1, 2).mapInArrow(sizes, "size bigint"),
        confs={_MAX_RECORDS: str(max_records)},
    )
    assert sum(row[0] for row in answer.rows) == _ROWS


def test_a_columnar_child_keeps_batches_within_the_conf(sides: Sides, spark: SparkSession, tmp_path: Any) -> None:
    path = str(tmp_path / "rows")
    spark.range(0, _ROWS, 1, 1).write.parquet(path)
    confs = {_MAX_RECORDS: "1000"}
    sizes = _column("arrow_udf").alias("size")
    ours = sides.updraft(lambda spark: spark.read.parquet(path).select("id", sizes), confs=confs)
    assert ours.error is None
    sides.assert_ran_on_the_pool(ours)
    if not sides.compares_stock_with_itself:
        # Stock ignores the conf over a columnar child; the pool keeps it.
        assert max(row[1] for row in ours.rows) <= 1000
    assert [row[0] for row in ours.rows] == list(range(_ROWS))


def test_wide_rows_travel_in_several_messages(sides: Sides) -> None:
    shouted = F.arrow_udf(lambda a: pa.compute.utf8_upper(a), "string", F.ArrowUDFType.SCALAR)
    sides.assert_same(
        lambda spark: spark.range(0, 40, 1, 2).select(
            shouted(F.repeat(F.concat(F.lit("é"), F.col("id")), 200_000)).alias("text")
        )
    )
