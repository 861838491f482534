# SPDX-License-Identifier: Apache-2.0
"""Updraft runs the functions, Comet the operators around them, and neither changes the other's results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.support.spark import ENABLED, executed_plan, flight_operators, runtime_confs, stock_operators

_COMET = "spark.comet.enabled"
_ALONE = {ENABLED: "false", _COMET: "false"}

Query = Callable[[DataFrame], DataFrame]


def _same(values: Any) -> Any:
    return values


def _same_series(values: pd.Series) -> pd.Series:
    return values


def _median(values: pd.Series) -> float:
    return float(values.median())


def _each_type(rows: DataFrame) -> DataFrame:
    """Send each column to a function of its own, which returns it."""
    chosen = []
    for field in rows.schema.fields:
        nested = field.name.startswith(("list", "record"))
        same = F.udf(lambda value: value, field.dataType) if nested else F.pandas_udf(_same_series, field.dataType)
        chosen.append(same(field.name).alias(field.name))
    return rows.where("id % 3 > 0").select(chosen)


def _twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def _counted(key: tuple[Any, ...], group: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [key[0]], "n": [len(group)], "d": [group["double"].sum()]})


def _aggregated(rows: DataFrame) -> DataFrame:
    upper = F.pandas_udf(lambda texts: texts.str.upper(), "string")
    named = rows.select(upper("text").alias("name"), "amount", "long")
    return named.where("name <> 'TEXT 5'").groupBy("name").agg(F.sum("amount").alias("a"), F.max("long").alias("l"))


def _joined(rows: DataFrame) -> DataFrame:
    key = F.pandas_udf(lambda numbers: numbers % 50, "bigint")
    name = F.udf(lambda number: f"<{number}>", useArrow=True)
    names = rows.where("id < 50").select(F.col("id").alias("k"), name("id").alias("name"))
    return rows.select(key("id").alias("k"), "double").join(names, "k").groupBy("name").agg(F.sum("double"))


QUERIES: dict[str, Query] = {
    "each_type": _each_type,
    "pickled": lambda rows: rows.select("id", F.udf(lambda text: text[::-1])("unique").alias("y")),
    "map_in_arrow": lambda rows: rows.select("id", "text").mapInArrow(_twice, "id bigint, text string"),
    "map_in_pandas": lambda rows: rows.select("id", "text").mapInPandas(_same, "id bigint, text string"),
    "grouped": lambda rows: (
        rows.selectExpr("id % 20 AS k", "double").groupBy("k").applyInPandas(_counted, "k bigint, n bigint, d double")
    ),
    "median": lambda rows: rows.groupBy((F.col("id") % 20).alias("k")).agg(F.pandas_udf(_median, "double")("double")),
    "aggregated": _aggregated,
    "joined": _joined,
}


def _answer(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def _operators(plan: str) -> list[str]:
    """Return the operators of a plan from top to bottom, with two leaves if it is a join."""
    return re.findall(r"^[\s:+*\-\d()]*([A-Z]\w+)", plan, re.MULTILINE)


@pytest.mark.parametrize("name", QUERIES)
def test_functions_run_on_the_pool_above_comet_with_stocks_answers(spark: SparkSession, rows: str, name: str) -> None:
    frame = QUERIES[name](spark.read.parquet(rows))
    answer, plan = _answer(frame), executed_plan(frame)
    with runtime_confs(spark, _ALONE):
        stock = QUERIES[name](spark.read.parquet(rows))
        assert _answer(stock) == answer
        assert not flight_operators(executed_plan(stock))
        assert "Comet" not in executed_plan(stock)
    assert flight_operators(plan)
    assert not stock_operators(plan)
    assert "CometNativeScan" in plan


def test_the_operator_takes_comets_batches_as_they_are(spark: SparkSession, rows: str) -> None:
    frame = _each_type(spark.read.parquet(rows)).select("long", "text")
    operators = _operators(executed_plan(frame))
    above = operators.index("FlightEvalPython")
    assert operators[above + 1].startswith("Comet")
    assert not [name for name in operators[above:] if name.endswith("ToRow")]


def test_explain_names_the_owner_of_each_operator(spark: SparkSession, rows: str) -> None:
    query = QUERIES["map_in_arrow"]
    both = _operators(executed_plan(query(spark.read.parquet(rows))))
    assert [name for name in both if "Map" in name] == ["FlightMapInBatch"]
    with runtime_confs(spark, {ENABLED: "false"}):
        comet = _operators(executed_plan(query(spark.read.parquet(rows))))
    assert not [name for name in comet if name.startswith("Flight")]


def test_results_are_cached_and_written_as_parquet(spark: SparkSession, rows: str, tmp_path: Path) -> None:
    frame = _aggregated(spark.read.parquet(rows)).cache()
    try:
        answer = _answer(frame)
        frame.write.parquet(str(tmp_path / "out"))
    finally:
        frame.unpersist()
    assert _answer(spark.read.parquet(str(tmp_path / "out"))) == answer
    assert isinstance(frame.first(), Row)


def test_an_error_of_a_function_reads_as_ever(spark: SparkSession, rows: str) -> None:
    def fail(values: pd.Series) -> pd.Series:
        raise ValueError(f"no such value among {len(values)}")

    with pytest.raises(Exception, match="no such value among"):
        spark.read.parquet(rows).select(F.pandas_udf(fail, "bigint")("id")).collect()


def test_values_of_comets_vectors_are_copied_by_buffer(spark: SparkSession) -> None:
    jvm = spark._jvm
    arrow = jvm.org.apache.comet.shaded.arrow
    allocator = arrow.memory.RootAllocator()
    try:
        numbers, texts, flags = (
            getattr(arrow.vector, name)("column", allocator) for name in ("BigIntVector", "VarCharVector", "BitVector")
        )
        found = []
        for vector in (numbers, texts, flags):
            vector.allocateNew()
            vector.setValueCount(3)
            found.append(
                jvm.io.updraft.spark.columns.ArrowBuffers.of(jvm.org.apache.comet.vector.CometPlainVector(vector, True))
            )
            vector.close()
    finally:
        allocator.close()
    assert found[0].hasFixedWidth(8)
    assert found[1].hasOffsets()
    assert found[2] is None
