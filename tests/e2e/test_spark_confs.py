# SPDX-License-Identifier: Apache-2.0
"""Spark's own settings for Python: docs/reference/spark-confs.md lists all of them, and their visible effects hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.errors import told
from tests.e2e.sides import Sides
from tests.support.paths import REPOSITORY
from tests.support.spark import SPARK_VERSION

_PAGE = REPOSITORY / "docs/reference/spark-confs.md"
_ROW = re.compile(r"^\| `(spark\.[^`]+)` \| (\d\.\d)(?: to (\d\.\d))? \| (\w+) \|", re.MULTILINE)
_ABOUT_PYTHON = re.compile(
    r"spark\.(python|pyspark|executor\.py|sql\.(execution\.(py|arrow)|py|legacy\.execution\.python|planner\.python))"
)


def _documented() -> set[str]:
    """Return the settings that the page lists for this Spark."""
    own = "{}.{}".format(*SPARK_VERSION)
    return {key for key, since, until, _ in _ROW.findall(_PAGE.read_text()) if since <= own <= (until or own)}


def _registered(spark: SparkSession) -> set[str]:
    entries = spark._jvm.org.apache.spark.internal.config
    # Scala's object registers its settings when it is first accessed.
    entries.Python.PYTHON_WORKER_REUSE()
    registry: Any = getattr(getattr(entries, "ConfigEntry$"), "MODULE$")
    return {key for key in registry.knownConfigs().keySet() if _ABOUT_PYTHON.match(key)}


def test_every_setting_for_python_is_in_the_docs(spark: SparkSession) -> None:
    assert _registered(spark) == _documented()


def test_the_docs_use_the_words_that_they_define() -> None:
    rows = _ROW.findall(_PAGE.read_text())
    assert len(rows) == len({key for key, *_ in rows})
    assert {word for *_, word in rows} == {"holds", "stock", "differs", "idle"}


def _arrow_types(values: pa.Array) -> pa.Array:
    return pa.array([str(values.type)] * len(values))


def _dtypes(values: pd.Series) -> pd.Series:
    return pd.Series([str(values.dtype)] * len(values))


def _sizes(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for values in batches:
        yield pa.array([len(values)] * len(values), pa.int64())


def _rows(spark: SparkSession) -> DataFrame:
    gaps = F.when(F.col("id") % 3 != 0, F.col("id"))
    text = F.concat(F.lit("row "), F.col("id"))
    return spark.range(0, 100, 1, 1).select("id", gaps.alias("gaps"), text.alias("text"))


def _large_var_types(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.arrow_udf(_arrow_types, "string", F.ArrowUDFType.SCALAR)("text"))


def _bytes(spark: SparkSession) -> DataFrame:
    name = F.udf(lambda value: type(value).__name__, "string", useArrow=False)
    return _rows(spark).select(name(F.col("text").cast("binary")))


def _nullable_integers(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.pandas_udf(_dtypes, "string", F.PandasUDFType.SCALAR)("gaps"))


def _integers_as_decimals(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.pandas_udf(lambda values: values, "decimal(10, 2)", F.PandasUDFType.SCALAR)("id"))


def _texts_as_numbers(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.udf(lambda value: str(value), "bigint", useArrow=True)("id"))


def _default_udf(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.udf(lambda value: f"{type(value).__name__} {value}", "string")("id"))


def _batch_size(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.udf(lambda _: os.environ.get("PYTHON_UDF_BATCH_SIZE"), "string", useArrow=False)("id"))


def _sizes_of_batches(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.arrow_udf(_sizes, "bigint", F.ArrowUDFType.SCALAR_ITER)("id"))


def _list_for_an_iterator(spark: SparkSession) -> DataFrame:
    return _rows(spark).mapInArrow(lambda batches: list(batches), "id bigint, gaps bigint, text string")


def _null_for_a_required_column(spark: SparkSession) -> DataFrame:
    nothing = pa.RecordBatch.from_pydict({"x": pa.array([None], pa.int64())})
    return _rows(spark).mapInArrow(lambda batches: (nothing for _ in batches), "x bigint not null")


def _local_time(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT timestamp'2024-06-01 12:00:00Z' AS t").select(F.udf(str, "string", useArrow=False)("t"))


def _overflow(spark: SparkSession) -> DataFrame:
    return _rows(spark).select(F.udf(lambda value: value + 2**40, "int", useArrow=True)("id"))


def _failure(spark: SparkSession) -> DataFrame:
    def fail_on_purpose(value: int) -> int:
        secret_of_the_function = value + 1
        raise ValueError(secret_of_the_function)

    return _rows(spark).select(F.udf(fail_on_purpose, "bigint", useArrow=False)("id"))


_SQL = "spark.sql.execution."
# Settings, values that differ from the default, and queries whose answer or error shows them.
SHOWN: list[tuple[str, tuple[str, ...], Callable[[SparkSession], DataFrame]]] = [
    (f"{_SQL}arrow.useLargeVarTypes", ("true",), _large_var_types),
    (f"{_SQL}arrow.maxRecordsPerBatch", ("9", "0"), _sizes_of_batches),
    (f"{_SQL}arrow.maxBytesPerBatch", ("56",), _sizes_of_batches),
    (f"{_SQL}arrow.pyspark.validateSchema.enabled", ("true", "false"), _null_for_a_required_column),
    (f"{_SQL}pyspark.binaryAsBytes", ("false",), _bytes),
    (f"{_SQL}pyspark.udf.hideTraceback.enabled", ("true",), _failure),
    (f"{_SQL}pyspark.udf.simplifiedTraceback.enabled", ("false",), _failure),
    (f"{_SQL}pyspark.udf.tracebackWithLocals.enabled", ("true",), _failure),
    (f"{_SQL}python.udf.maxRecordsPerBatch", ("7",), _batch_size),
    (f"{_SQL}python.udf.maxBytesPerBatch", ("100",), _default_udf),
    (f"{_SQL}pythonUDF.arrow.concurrency.level", ("2",), _texts_as_numbers),
    (f"{_SQL}pythonUDF.arrow.enabled", ("true", "false"), _default_udf),
    (f"{_SQL}pythonUDF.mapInBatch.legacy.acceptAnyIterable.enabled", ("true", "false"), _list_for_an_iterator),
    (f"{_SQL}pythonUDF.pandas.intToDecimalCoercionEnabled", ("true", "false"), _integers_as_decimals),
    (f"{_SQL}pythonUDF.pandas.preferIntExtensionDtype", ("true",), _nullable_integers),
    ("spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled", ("true",), _texts_as_numbers),
    ("spark.sql.session.timeZone", ("Asia/Tokyo",), _local_time),
    ("spark.sql.ansi.enabled", ("false", "true"), _overflow),
]
# Settings that this Spark passes to its workers: 4.0 does not pass the rows of a pickled batch.
_TOLD = _documented() - ({f"{_SQL}python.udf.maxRecordsPerBatch"} if SPARK_VERSION < (4, 1) else set())


@pytest.mark.parametrize(
    ("key", "value", "query"),
    [
        pytest.param(key, value, query, id=f"{key.removeprefix('spark.sql.')}={value}")
        for key, values, query in SHOWN
        for value in values
        if key in _TOLD or not _ABOUT_PYTHON.match(key)
    ],
)
def test_a_setting_means_what_it_means_on_stock(
    sides: Sides, key: str, value: str, query: Callable[[SparkSession], DataFrame]
) -> None:
    stock, ours = sides.stock(query, {key: value}), sides.updraft(query, confs={key: value})
    assert type(ours.error) is type(stock.error), ours.error or stock.error
    assert ours.rows == stock.rows
    if isinstance(stock.error, PythonException):
        assert told(ours.error) == told(stock.error)
    sides.assert_ran_on_the_pool(ours)
