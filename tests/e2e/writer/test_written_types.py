# SPDX-License-Identifier: Apache-2.0
"""The writer writes every type that Spark's own Parquet and ORC writers support, and in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.types import TYPE_CASES
from tests.e2e.writer.conftest import DELIVERY
from tests.e2e.writer.written import Written, both
from tests.support.spark import runtime_confs

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
# Types that no file holds, or that only Spark's own writer writes: the guide's list.
_NOT_THERE = {"void", "calendar_interval", "variant"}
# Timestamps have tests of their own.
_NOT_IN_ORC = {"time", "timestamp", "array_timestamp"}


def _typed(spark: SparkSession, table: Path, without: set[str]) -> DataFrame:
    """Return all shapes of the suite's table, each in a file of its own."""
    cases = [case for case in TYPE_CASES if case.name not in _NOT_THERE | without]
    columns = [F.expr(case.expression).alias(case.name) if case.expression else F.col(case.name) for case in cases]
    return spark.read.parquet(str(table)).select("id", *columns)


def _assert_same_parquet(spark: SparkSession, stock: Written, ours: Written) -> None:
    assert all(creator.startswith("parquet-cpp-arrow") for creator in ours.created_by())
    assert ours.layout() == stock.layout()
    assert ours.footer() == stock.footer()
    assert ours.columns() == stock.columns()
    assert ours.schema(spark) == stock.schema(spark)
    assert ours.rows(spark) == stock.rows(spark)
    assert ours.arrow_rows() == stock.arrow_rows()


@pytest.mark.parametrize(
    ("timestamps", "delivery"),
    # Bytes that come back are of the same encoder, whichever timestamps it writes.
    [("INT96", "direct"), ("INT96", "return"), ("TIMESTAMP_MICROS", "direct"), ("TIMESTAMP_MILLIS", "direct")],
)
def test_parquet_has_the_rows_schema_and_footer_of_sparks_own(
    spark: SparkSession, table: Path, place: Path, timestamps: str, delivery: str
) -> None:
    with runtime_confs(spark, {_TIMESTAMPS: timestamps, DELIVERY: delivery}):
        stock, ours = both(_typed(spark, table, set()), place)
        _assert_same_parquet(spark, stock, ours)
        if delivery == "direct":
            # A scan's batches are written as they are.
            stock, ours = both(spark.read.parquet(str(stock.path)), place / "again")
            _assert_same_parquet(spark, stock, ours)


@pytest.mark.parametrize("delivery", ["direct", "return"])
def test_orc_has_the_rows_and_schema_of_sparks_own(
    spark: SparkSession, table: Path, place: Path, delivery: str
) -> None:
    with runtime_confs(spark, {DELIVERY: delivery}):
        stock, ours = both(_typed(spark, table, _NOT_IN_ORC), place, "updraft-orc")
        assert ours.layout() == stock.layout()
        assert ours.schema(spark) == stock.schema(spark)
        assert ours.rows(spark) == stock.rows(spark)


def _in_hexadecimal(spark: SparkSession, written: Written) -> list[tuple[object, ...]]:
    """Return the rows in order, with texts in hexadecimal, because Python could not read them."""
    frame = spark.read.format(written.format).load(str(written.path))
    shown = frame.select(F.hex("few"), F.hex("many"), F.transform("l", F.hex))
    return [tuple(row) for row in shown.collect()]


@pytest.mark.parametrize("format_name", ["updraft-parquet", "updraft-orc"])
def test_text_that_is_not_utf_8_is_written_byte_by_byte(spark: SparkSession, place: Path, format_name: str) -> None:
    # "Müller" and "Größe" in Latin-1, in columns with and without a dictionary, alone and in lists.
    text = "cast(X'{}' as string)".format
    frame = spark.range(0, 20_000, 1, 1).selectExpr(
        f"if(id % 2 = 0, {text('4DFC6C6C6572')}, {text('4772F6DF65')}) few",
        f"concat({text('4DFC')}, id) many",
        f"array({text('4772F6')}, null, string(id)) l",
    )
    stock, ours = both(frame, place, format_name)
    assert _in_hexadecimal(spark, ours) == _in_hexadecimal(spark, stock)


def test_orc_dates_of_the_old_calendar_read_as_sparks_own_do(spark: SparkSession, place: Path) -> None:
    days = spark.range(-700_000, -100_000, 997).select(
        F.date_add(F.lit("1970-01-01"), F.col("id").cast("int")).alias("d")
    )
    frame = days.select("d", F.col("d").cast("timestamp_ntz").alias("t"), F.array("d").alias("l"))
    stock, ours = both(frame.union(days.limit(1).selectExpr("null", "null", "null")), place, "updraft-orc")
    assert ours.rows(spark) == stock.rows(spark)


def test_what_may_not_be_null_is_required_and_field_ids_are_kept(spark: SparkSession, place: Path) -> None:
    inner = T.StructType([T.StructField("x", T.IntegerType(), False, {"parquet.field.id": 7})])
    schema = T.StructType(
        [
            T.StructField("id", T.LongType(), False, {"parquet.field.id": 3}),
            T.StructField("s", inner, False),
            T.StructField("l", T.ArrayType(T.StringType(), False), True, {"parquet.field.id": 4}),
            T.StructField("m", T.MapType(T.StringType(), inner, False), False),
        ]
    )
    frame = spark.createDataFrame([(1, (2,), ["a"], {"k": (5,)}), (2, (3,), None, {})], schema).coalesce(1)
    stock, ours = both(frame, place)
    _assert_same_parquet(spark, stock, ours)
    with runtime_confs(spark, {"spark.sql.parquet.fieldId.read.enabled": "true"}):
        renamed = T.StructType([T.StructField("other", T.LongType(), True, {"parquet.field.id": 3})])
        read = spark.read.schema(renamed).parquet(str(ours.path))
        assert sorted(row.other for row in read.collect()) == [1, 2]


def test_a_partition_without_rows_leaves_the_schema(spark: SparkSession, place: Path) -> None:
    stock, ours = both(spark.range(0).select("id", F.lit("x").alias("s")), place)
    _assert_same_parquet(spark, stock, ours)
