# SPDX-License-Identifier: Apache-2.0
"""Shapes of plans: several functions, chains, arguments, several operators in one stage, fallbacks.

`test_contexts.py` covers the places of a query that may call a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import Sides

# Each partition has more rows than a scan's batch and than a function's batch.
_ROWS = 4_000
_CONFS = {
    "spark.sql.parquet.columnarReaderBatchSize": "300",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}

Shape = Callable[[DataFrame], DataFrame]


@F.udf(T.LongType(), useArrow=False)
def pickled_plus_one(x: int) -> int:
    return x + 1


@F.udf(T.LongType(), useArrow=True)
def arrow_plus_one(x: int) -> int:
    return x + 1


@F.pandas_udf(T.LongType(), F.PandasUDFType.SCALAR)
def pandas_plus_one(x: pd.Series) -> pd.Series:
    return x + 1


@F.arrow_udf(T.LongType(), F.ArrowUDFType.SCALAR)
def plus_one(x: pa.Array) -> pa.Array:
    return pc.add(x, 1)


@F.arrow_udf(T.LongType(), F.ArrowUDFType.SCALAR)
def minus(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.subtract(left, right)


@F.pandas_udf(T.StringType(), F.PandasUDFType.SCALAR)
def shouted(text: pd.Series) -> pd.Series:
    return text.str.upper()


ONE_ARGUMENT = {
    "pickled": pickled_plus_one,
    "arrow_optimised": arrow_plus_one,
    "pandas": pandas_plus_one,
    "arrow": plus_one,
}


# Either child produces the same Arrow data, so one transport for each is enough.
_SOURCES = {"columnar": "unix", "range": "tcp"}


@pytest.fixture(scope="module", autouse=True)
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create views of id, a null in every seventh row, text, and an unused column: as a columnar and as a row child."""
    path = tmp_path_factory.mktemp("numbers") / "numbers"
    frame = spark.range(0, _ROWS, 1, 3).select(
        "id",
        F.when(F.col("id") % 7 != 0, F.col("id") * 3).alias("gaps"),
        F.concat(F.lit("row "), F.col("id")).alias("text"),
        F.array(F.col("id"), F.lit(None)).alias("items"),
    )
    frame.write.parquet(str(path))
    frame.createOrReplaceTempView("range")
    spark.read.parquet(str(path)).createOrReplaceTempView("columnar")
    return path


def _next_of_all(function: Any) -> Shape:
    return lambda rows: rows.select("*", function("id").alias("next"))


def _chain(rows: DataFrame) -> DataFrame:
    return rows.select(plus_one(plus_one(plus_one("id"))))


def _pickled_chain(rows: DataFrame) -> DataFrame:
    return rows.select(pickled_plus_one(pickled_plus_one("id")))


def _named_arguments(rows: DataFrame) -> DataFrame:
    return rows.select(minus(right=F.col("id"), left=F.col("gaps")))


def _one_column_twice(rows: DataFrame) -> DataFrame:
    return rows.select(minus("id", "id"))


def _expressions_and_literals(rows: DataFrame) -> DataFrame:
    difference = minus(F.col("id") * 2 + F.length("text"), F.lit(5).cast("bigint"))
    return rows.select(difference, plus_one(F.coalesce("gaps", "id")) * 10)


def _no_arguments(rows: DataFrame) -> DataFrame:
    return rows.select("id", F.udf(lambda: 42, "int", useArrow=False)())


def _nested_columns_beside(rows: DataFrame) -> DataFrame:
    return rows.select("items", "text", plus_one("id"), "gaps")


def _nondeterministic(rows: DataFrame) -> DataFrame:
    return rows.select(F.udf(lambda x: x * 2, "bigint", useArrow=False).asNondeterministic()("id"))


def _several_kinds(rows: DataFrame) -> DataFrame:
    # Each task holds one exchange and asks for the next; the pool has as many workers as there are tasks.
    return rows.select(pickled_plus_one(pandas_plus_one(arrow_plus_one(plus_one("id")))), shouted("text"))


def _maps_in_a_row(rows: DataFrame) -> DataFrame:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    def first_rows(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield batch[batch["id"] % 10 == 0]

    schema = "id bigint, text string"
    return rows.select("id", "text").mapInArrow(doubled, schema).mapInPandas(first_rows, schema)


def _nothing_of_a_map(rows: DataFrame) -> DataFrame:
    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    return rows.select("id").mapInArrow(nothing, "id bigint")


def _all_before_the_first(rows: DataFrame) -> DataFrame:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    return rows.select("id", "text").mapInArrow(counted, "rows bigint")


def _a_map_that_stops_early(rows: DataFrame) -> DataFrame:
    def first_batch(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield next(batches).head(1)

    return rows.select("id").mapInPandas(first_batch, "id bigint")


def _maps_of_empty_partitions(rows: DataFrame) -> DataFrame:
    """Call a map without rows, which may still return some."""

    def one_more(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    def and_another(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"rows": [sum(len(frame) for frame in frames)]})

    some = rows.where("id < 3").select("id")
    counted = some.mapInArrow(one_more, "rows bigint")
    return counted.union(some.mapInPandas(and_another, "rows bigint")).union(
        counted.where("rows < 0").mapInPandas(and_another, "rows bigint")
    )


def _limit(rows: DataFrame) -> DataFrame:
    return rows.select(plus_one("id")).limit(17)


# Shapes, and how many rows each gives.
SHAPES: dict[str, tuple[Shape, int]] = {
    **{f"next_{name}": (_next_of_all(function), _ROWS) for name, function in ONE_ARGUMENT.items()},
    "chain": (_chain, _ROWS),
    "pickled_chain": (_pickled_chain, _ROWS),
    "named_arguments": (_named_arguments, _ROWS),
    "one_column_twice": (_one_column_twice, _ROWS),
    "expressions_and_literals": (_expressions_and_literals, _ROWS),
    "no_arguments": (_no_arguments, _ROWS),
    "nested_columns_beside": (_nested_columns_beside, _ROWS),
    "nondeterministic": (_nondeterministic, _ROWS),
    "several_kinds": (_several_kinds, _ROWS),
    "maps_in_a_row": (_maps_in_a_row, 2 * _ROWS // 10),
    "nothing_of_a_map": (_nothing_of_a_map, 0),
    "all_before_the_first": (_all_before_the_first, 3),
    "a_map_that_stops_early": (_a_map_that_stops_early, 3),
    "maps_of_empty_partitions": (_maps_of_empty_partitions, 9),
    "limit": (_limit, 17),
}


@pytest.mark.parametrize(("source", "transport"), _SOURCES.items())
@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_gives_what_it_gives_on_stock(sides: Sides, shape: str, source: str, transport: str) -> None:
    ask, rows = SHAPES[shape]
    assert len(sides.assert_same(lambda spark: ask(spark.table(source)), transport, _CONFS).rows) == rows


@pytest.mark.parametrize("source", _SOURCES)
def test_several_functions_share_one_exchange(sides: Sides, source: str) -> None:
    answer = sides.assert_same(
        lambda spark: spark.table(source).select(
            plus_one("id").alias("a"), plus_one("gaps").alias("b"), minus("gaps", "id").alias("c"), "text"
        )
    )
    assert sides.compares_stock_with_itself or answer.plan.count("Flight") == 1


def test_generated_code_writes_its_rows_into_requests(sides: Sides) -> None:
    lineages = []

    def query(spark: SparkSession) -> DataFrame:
        frame = spark.range(10_000).where("id % 3 != 0").select(plus_one(F.col("id") * 2), "id")
        lineages.append(frame._jdf.queryExecution().toRdd().toDebugString())
        return frame

    sides.assert_same(query)
    assert sides.compares_stock_with_itself or "FusedStage" in lineages[-1]


def test_calls_of_sparks_own_functions_see_parameters_and_common_tables(sides: Sides) -> None:
    text = (
        "WITH t AS (SELECT 3 AS a) SELECT id, mask(:s, upperChar => 'Q') AS masked FROM range(:n) "
        "WHERE id < (SELECT a FROM t)"
    )
    sides.assert_same(lambda spark: spark.sql(text, args={"n": 9, "s": "Ab"}).select(plus_one("id"), "masked"))


def test_rows_from_no_file_have_no_input_file_after_rows_of_one(
    sides: Sides, spark: SparkSession, tmp_path: Path
) -> None:
    directory = tmp_path / "file"
    spark.range(0, 100, 1, 1).write.parquet(str(directory))
    (file,) = directory.glob("*.parquet")

    def query(spark: SparkSession) -> DataFrame:
        both = spark.read.parquet(str(directory)).union(spark.range(100, 1000, 1, 1)).coalesce(1)
        return both.where("rand() >= 0").select("id", plus_one("id"), F.input_file_name())

    answer = sides.updraft(query, confs={"spark.sql.execution.arrow.maxRecordsPerBatch": "20"})
    sides.assert_ran_on_the_pool(answer)
    if not sides.compares_stock_with_itself:
        assert sorted(answer.rows) == [(i, i + 1, f"file://{file}" if i < 100 else "") for i in range(1000)]


@pytest.mark.parametrize("rows", ["columnar", "rows"])
@pytest.mark.parametrize("kind", ONE_ARGUMENT)
def test_each_row_knows_its_input_file_beside_a_function(
    sides: Sides, spark: SparkSession, tmp_path: Path, kind: str, rows: str
) -> None:
    """A task reads several files. Stock PySpark, which also reads ahead, gives some rows the wrong file name."""
    directory = tmp_path / "files"
    columns = "id", "nullif(id % 7, 0) gaps", "concat('text ', id) text", "array(id, null) list", "id % 3 = 0 flag"
    spark.range(0, 450, 1, 3).selectExpr(*columns).write.parquet(str(directory))

    def query(spark: SparkSession) -> DataFrame:
        files = spark.read.parquet(str(directory))
        files = files if rows == "columnar" else files.where("rand() >= 0")
        return files.select("*", ONE_ARGUMENT[kind]("id"), F.input_file_name())

    confs = {
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
        # Files begin within a batch and between two.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    }
    answer = sides.updraft(query, confs=confs)
    sides.assert_ran_on_the_pool(answer)
    if not sides.compares_stock_with_itself:
        assert sorted(answer.rows) == sorted(
            (*row.values(), row["id"] + 1, f"file://{path}")
            for path in directory.glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
        )


@pytest.mark.parametrize("source", _SOURCES)
def test_a_barrier_stage_stays_on_stock_execution_and_says_so(sides: Sides, source: str) -> None:
    def smallest(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield next(frames).nsmallest(1, "id")

    def query(spark: SparkSession) -> DataFrame:
        return spark.table(source).select("id").repartition(1).mapInPandas(smallest, "id bigint", barrier=True)

    stock, ours = sides.stock(query), sides.updraft(query)
    assert not stock.error
    assert sides.compares_stock_with_itself or "not on the pool" in ours.plan
    assert ours.rows == stock.rows
