# SPDX-License-Identifier: Apache-2.0
"""Spark's own confs decide how many rows a function sees at once, whatever fits in one message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.kinds import KINDS, takes_the_way_of_another
from tests.e2e.kinds.kind import Kind
from tests.e2e.sides import Query, Sides

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# One full batch, and some remaining rows.
_ROWS = {1: 20, 7: 100, 1_000: 1_001, 10_000: 10_001}
# These kinds call the function for each row, and each call takes Arrow or pandas half a millisecond.
_CALLED_FOR_EACH_ROW = ("udtf_arrow_lateral", "udtf_arrow_table", "window_pandas_bounded")


def _sizes(values: Any) -> Any:
    """Return for each value the number of values in its batch."""
    if isinstance(values, pd.Series):
        return pd.Series([len(values)] * len(values))
    if isinstance(values, pa.Array):
        return pa.array([len(values)] * len(values), pa.int64())
    return values


def _query(kind: Kind, rows: int) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        return kind.apply(spark.range(0, rows, 1, 1).withColumn("k", F.col("id") % 3), kind.function(_sizes))

    return query


def _kinds_with_rows() -> Iterator[Any]:
    for kind in KINDS:
        like_another = [pytest.mark.campaign] if takes_the_way_of_another(kind) else []
        for max_records in (1, 7, 1_000 if kind.name in _CALLED_FOR_EACH_ROW else 10_000):
            marks = [pytest.mark.one_of_each] if max_records == 7 else like_another
            yield pytest.param(kind, max_records, id=f"{kind.name}-{max_records}", marks=marks)


@pytest.mark.matrix("batches")
@pytest.mark.parametrize(("kind", "max_records"), list(_kinds_with_rows()))
def test_a_function_sees_the_batches_that_stock_gives_it(sides: Sides, kind: Kind, max_records: int) -> None:
    sides.assert_same(_query(kind, _ROWS[max_records]), confs={_MAX_RECORDS: str(max_records)})


def test_a_columnar_child_keeps_batches_within_the_conf(sides: Sides, spark: SparkSession, tmp_path: Any) -> None:
    path = str(tmp_path / "rows")
    spark.range(0, 10_001, 1, 1).write.parquet(path)
    sizes = F.arrow_udf(_sizes, "bigint", F.ArrowUDFType.SCALAR)("id").alias("size")
    ours = sides.updraft(lambda spark: spark.read.parquet(path).select("id", sizes), confs={_MAX_RECORDS: "1000"})
    assert ours.error is None
    sides.assert_ran_on_the_pool(ours)
    if not sides.compares_stock_with_itself:
        # Stock ignores the conf over a columnar child; the pool respects it.
        assert max(row[1] for row in ours.rows) <= 1000
    assert [row[0] for row in ours.rows] == list(range(10_001))


def _into_one_series(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    given = None
    for batch in batches:
        if given is None:
            given = batch + 1
        else:
            given[:] = batch + 1
        yield given


def test_a_series_that_the_function_gives_again_with_other_values_keeps_those_that_it_had(sides: Sides) -> None:
    added = F.pandas_udf(_into_one_series, "bigint", F.PandasUDFType.SCALAR_ITER)
    sides.assert_same(
        lambda spark: spark.range(0, 1_000, 1, 1).select("id", added("id").alias("x")), confs={_MAX_RECORDS: "10"}
    )


def test_wide_rows_travel_in_several_messages(sides: Sides) -> None:
    shouted = F.arrow_udf(lambda a: pa.compute.utf8_upper(a), "string", F.ArrowUDFType.SCALAR)
    sides.assert_same(
        lambda spark: spark.range(0, 40, 1, 2).select(
            shouted(F.repeat(F.concat(F.lit("é"), F.col("id")), 200_000)).alias("text")
        )
    )
