# SPDX-License-Identifier: Apache-2.0
"""Shapes of plans: several functions, chains, arguments, filters, several operators in one stage, fallbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.sides import Query, Sides

_ROWS = 25_000


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


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet with more rows than a batch: id, a null in every seventh, text, and a column nobody asks for."""
    path = tmp_path_factory.mktemp("numbers") / "numbers"
    frame = spark.range(0, _ROWS, 1, 3).select(
        "id",
        F.when(F.col("id") % 7 != 0, F.col("id") * 3).alias("gaps"),
        F.concat(F.lit("row "), F.col("id")).alias("text"),
        F.array(F.col("id"), F.lit(None)).alias("items"),
    )
    frame.write.parquet(str(path))
    return path


@pytest.fixture(params=["columnar", "range"])
def source(request: pytest.FixtureRequest, numbers: Path) -> Query:
    """Reads id, gaps, text from a columnar or a row child."""

    def columnar(spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(numbers))

    def rows(spark: SparkSession) -> DataFrame:
        return spark.range(0, _ROWS, 1, 3).select(
            "id",
            F.when(F.col("id") % 7 != 0, F.col("id") * 3).alias("gaps"),
            F.concat(F.lit("row "), F.col("id")).alias("text"),
            F.array(F.col("id"), F.lit(None)).alias("items"),
        )

    return columnar if request.param == "columnar" else rows


@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("kind", ONE_ARGUMENT)
def test_rows_keep_their_order_and_their_other_columns(sides: Sides, source: Query, kind: str, transport: str) -> None:
    function = ONE_ARGUMENT[kind]
    answer = sides.assert_same(lambda spark: source(spark).select("*", function("id").alias("next")), transport)
    assert len(answer.rows) == _ROWS
    assert all(row[-1] == row[0] + 1 for row in answer.rows)


def test_several_functions_share_one_exchange(sides: Sides, source: Query) -> None:
    answer = sides.assert_same(
        lambda spark: source(spark).select(
            plus_one("id").alias("a"), plus_one("gaps").alias("b"), minus("gaps", "id").alias("c"), "text"
        )
    )
    assert sides.compares_stock_with_itself or answer.plan.count("Flight") == 1


def test_chained_functions_run_in_one_call(sides: Sides, source: Query) -> None:
    sides.assert_same(lambda spark: source(spark).select(plus_one(plus_one(plus_one("id"))).alias("x")))


def test_a_pickled_chain_runs_in_one_call(sides: Sides, source: Query) -> None:
    sides.assert_same(lambda spark: source(spark).select(pickled_plus_one(pickled_plus_one("id")).alias("x")))


def test_arguments_can_be_named(sides: Sides, source: Query) -> None:
    sides.assert_same(
        lambda spark: source(spark).select(minus(right=F.col("id"), left=F.col("gaps")).alias("x")),
    )


def test_the_same_column_can_be_an_argument_twice(sides: Sides, source: Query) -> None:
    answer = sides.assert_same(lambda spark: source(spark).select(minus("id", "id").alias("x")))
    assert {row[0] for row in answer.rows} == {0}


def test_expressions_and_literals_can_be_arguments(sides: Sides, source: Query) -> None:
    sides.assert_same(
        lambda spark: source(spark).select(
            minus(F.col("id") * 2 + F.length("text"), F.lit(5).cast("bigint")).alias("x"),
            (plus_one(F.coalesce("gaps", "id")) * 10).alias("y"),
        )
    )


def test_a_function_without_arguments_gives_a_value_for_each_row(sides: Sides, source: Query) -> None:
    constant = F.udf(lambda: 42, "int", useArrow=False)
    answer = sides.assert_same(lambda spark: source(spark).select("id", constant().alias("x")))
    assert len(answer.rows) == _ROWS


def test_a_function_can_filter(sides: Sides, source: Query) -> None:
    odd = F.udf(lambda x: x % 2 == 1, "boolean", useArrow=False)
    answer = sides.assert_same(lambda spark: source(spark).where(odd("id")).select("id", "text"))
    assert len(answer.rows) == _ROWS // 2


def test_nested_columns_pass_by_untouched(sides: Sides, source: Query) -> None:
    sides.assert_same(lambda spark: source(spark).select("items", "text", plus_one("id").alias("x"), "gaps"))


def test_an_aggregate_follows(sides: Sides, source: Query) -> None:
    sides.assert_same(
        lambda spark: (
            source(spark).groupBy((plus_one("id") % 5).alias("k")).agg(F.sum("gaps"), F.count("*")).orderBy("k")
        )
    )


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_functions_of_several_kinds_in_one_stage_do_not_wait_for_each_other(
    sides: Sides, source: Query, transport: str
) -> None:
    # Each task holds one exchange and asks for the next; the pool has as many workers as there are tasks.
    answer = sides.assert_same(
        lambda spark: source(spark).select(
            pickled_plus_one(pandas_plus_one(arrow_plus_one(plus_one("id")))).alias("x"), shouted("text").alias("t")
        ),
        transport,
    )
    assert sorted(row[0] for row in answer.rows) == [number + 4 for number in range(_ROWS)]


def test_map_in_arrow_and_map_in_pandas_follow_each_other(sides: Sides, source: Query) -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    def first_rows(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield batch[batch["id"] % 10 == 0]

    answer = sides.assert_same(
        lambda spark: (
            source(spark)
            .select("id", "text")
            .mapInArrow(doubled, "id bigint, text string")
            .mapInPandas(first_rows, "id bigint, text string")
        )
    )
    assert len(answer.rows) == 2 * _ROWS // 10


def test_map_in_arrow_may_yield_nothing(sides: Sides, source: Query) -> None:
    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    answer = sides.assert_same(lambda spark: source(spark).select("id").mapInArrow(nothing, "id bigint"))
    assert not answer.rows


def test_map_in_arrow_may_read_all_before_it_yields(sides: Sides, source: Query) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    answer = sides.assert_same(lambda spark: source(spark).select("id", "text").mapInArrow(counted, "rows bigint"))
    assert sum(row[0] for row in answer.rows) == _ROWS


def test_map_in_pandas_may_stop_reading_early(sides: Sides, source: Query) -> None:
    def first_batch(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield next(batches).head(1)

    answer = sides.assert_same(lambda spark: source(spark).select("id").mapInPandas(first_batch, "id bigint"))
    assert len(answer.rows) == 3


def test_a_limit_gives_the_same_rows(sides: Sides, source: Query) -> None:
    answer = sides.assert_same(lambda spark: source(spark).select(plus_one("id").alias("x")).limit(17))
    assert len(answer.rows) == 17


def test_the_input_file_is_known_beside_a_function(sides: Sides, numbers: Path) -> None:
    # The files are told apart by name alone: their directory is the same for both sides.
    sides.assert_same(
        lambda spark: spark.read.parquet(str(numbers)).select(plus_one("id").alias("x"), F.input_file_name().alias("f"))
    )


def test_a_nondeterministic_function_runs_on_the_pool(sides: Sides, source: Query) -> None:
    stateful = F.udf(lambda x: x * 2, "bigint", useArrow=False).asNondeterministic()
    sides.assert_same(lambda spark: source(spark).select(stateful("id").alias("x")))


def test_a_join_of_two_sides_with_functions(sides: Sides, numbers: Path) -> None:
    def query(spark: SparkSession) -> DataFrame:
        left = spark.read.parquet(str(numbers)).select(plus_one("id").alias("k"), "text")
        right = spark.read.parquet(str(numbers)).select(pandas_plus_one("id").alias("k"), "gaps")
        return left.join(right, "k").orderBy("k").limit(500)

    sides.assert_same(query)


def test_a_function_registered_for_sql_runs_on_the_pool(sides: Sides, source: Query) -> None:
    def query(spark: SparkSession) -> DataFrame:
        spark.udf.register("plus_one_in_sql", pandas_plus_one)
        source(spark).createOrReplaceTempView("numbers")
        return spark.sql("SELECT id, plus_one_in_sql(id + 1) AS x FROM numbers WHERE plus_one_in_sql(id) > 10")

    sides.assert_same(query)


def test_a_barrier_stage_stays_on_stock_execution_and_says_so(sides: Sides, source: Query) -> None:
    def smallest(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield next(frames).nsmallest(1, "id")

    def query(spark: SparkSession) -> DataFrame:
        return source(spark).select("id").repartition(1).mapInPandas(smallest, "id bigint", barrier=True)

    stock, ours = sides.stock(query), sides.updraft(query)
    assert not stock.error
    assert sides.compares_stock_with_itself or "not on the pool" in ours.plan
    assert ours.rows == stock.rows
