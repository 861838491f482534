# SPDX-License-Identifier: Apache-2.0
"""Cases that return one value for each row: udf, pandas_udf, arrow_udf, and their iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.programs.bench.case import MILLION, Case, Scene
from tests.programs.bench.tables import MANY_FILES, NUMBERS, STRINGS, TEXTS, WIDE
from tests.programs.bench.targets import HEAVY, LIGHTEST, REPEATED, STREAM
from tests.support.spark import SPARK_VERSION

_ONCE = "spark.updraft.udf.callOncePerValue"
_BROADCAST_VALUES = 200_000
_HAS_ARROW_UDF = SPARK_VERSION >= (4, 1)
_LIGHT = "arrow_udf" if _HAS_ARROW_UDF else "pandas_udf"


def add_one(values: pa.Array) -> pa.Array:
    return pc.add(values, 1)


def _add_one(values: pd.Series) -> pd.Series:
    return values + 1


def _mixed(x: int) -> int:
    for _ in range(60):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
    return x


def _add_one_to_each(batches: Iterator[Any]) -> Iterator[Any]:
    for values in batches:
        yield pc.add(values, 1) if isinstance(values, pa.Array) else values + 1


def _light(on_arrow: Callable[[pa.Array], pa.Array], on_pandas: Callable[[Any], Any], result: str = "bigint") -> Any:
    """Return an arrow_udf, or an equivalent pandas_udf in a Spark without arrow_udf."""
    if _HAS_ARROW_UDF:
        return F.arrow_udf(on_arrow, result, F.ArrowUDFType.SCALAR)
    return F.pandas_udf(on_pandas, result, F.PandasUDFType.SCALAR)


def _parquet_add(scene: Scene) -> DataFrame:
    return scene.stored(NUMBERS).select(scene.use(_light(add_one, _add_one))("a").alias("x"))


def _range_add(scene: Scene) -> DataFrame:
    return scene.numbers().select(scene.use(_light(add_one, _add_one))("id").alias("x"))


def _three_columns(scene: Scene) -> DataFrame:
    add = scene.use(_light(add_one, _add_one))
    return scene.stored(NUMBERS).select(*(add(name).alias(f"x_{name}") for name in "abc"))


def _strings(scene: Scene) -> DataFrame:
    return scene.stored(STRINGS).select(
        scene.use(_light(pc.utf8_upper, lambda texts: texts.str.upper(), "string"))("text").alias("x")
    )


def _text_lengths(scene: Scene) -> DataFrame:
    return scene.stored(TEXTS).select(
        scene.use(_light(pc.utf8_length, lambda texts: texts.str.len(), "int"))("text").alias("x")
    )


def _stream(scene: Scene) -> DataFrame:
    return scene.streamed(MANY_FILES).select(scene.use(_light(add_one, _add_one))("a").alias("x"))


def _one_row(scene: Scene) -> DataFrame:
    return scene.spark.range(0, scene.rows, 1, 1).select(scene.use(_light(add_one, _add_one))("id").alias("x"))


def _ten_columns(scene: Scene) -> DataFrame:
    return scene.stored(WIDE).select("*", scene.use(_light(add_one, _add_one))("a").alias("x"))


def _pandas_add(scene: Scene) -> DataFrame:
    add = F.pandas_udf(lambda values: values + 1, "bigint", F.PandasUDFType.SCALAR)
    return scene.numbers().select(scene.use(add)("id").alias("x"))


def _pandas_iterator(scene: Scene) -> DataFrame:
    add = F.pandas_udf(_add_one_to_each, "bigint", F.PandasUDFType.SCALAR_ITER)
    return scene.numbers().select(scene.use(add)("id").alias("x"))


def _arrow_iterator(scene: Scene) -> DataFrame:
    add = F.arrow_udf(_add_one_to_each, "bigint", F.ArrowUDFType.SCALAR_ITER)
    return scene.numbers().select(scene.use(add)("id").alias("x"))


def _pickled(scene: Scene) -> DataFrame:
    add = F.udf(lambda x: x + 1, "bigint", useArrow=False)
    return scene.numbers().select(scene.use(add)("id").alias("x"))


def _cpu_bound(scene: Scene) -> DataFrame:
    mixed = F.udf(_mixed, "bigint", useArrow=True)
    return scene.numbers().select(scene.use(mixed)("id").alias("x"))


def _ten_microseconds(x: int) -> int:
    for _ in range(180):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def _slow(scene: Scene, values: int | None = None) -> DataFrame:
    """Build a query with a slow function of `values` distinct values, or of a different value in each row."""
    value = F.col("id") if values is None else F.col("id") % values
    slow = F.udf(_ten_microseconds, "bigint", useArrow=True)
    return scene.numbers().select(value.alias("v")).select(scene.use(slow)("v").alias("x"))


def _broadcast(scene: Scene) -> DataFrame:
    weights = scene.spark.sparkContext.broadcast(np.arange(_BROADCAST_VALUES, dtype="float64"))

    def looked_up(values: pd.Series) -> pd.Series:
        return pd.Series(weights.value[values.to_numpy() % _BROADCAST_VALUES])

    weigh = F.pandas_udf(looked_up, "double", F.PandasUDFType.SCALAR)
    return scene.numbers().select(scene.use(weigh)("id").alias("x"))


_vectors = partial(Case, vectors=True, has_floor=True)

CASES = [
    _vectors("parquet_add", f"{_LIGHT} x+1, Parquet", 5 * MILLION, _parquet_add, NUMBERS, target=LIGHTEST),
    _vectors("range_add", f"{_LIGHT} x+1, range", 5 * MILLION, _range_add, target=LIGHTEST),
    _vectors("three_columns", "three UDF columns, Parquet", 5 * MILLION, _three_columns, NUMBERS, target=LIGHTEST),
    _vectors("strings", "100-byte strings to upper case, Parquet", MILLION, _strings, STRINGS),
    _vectors("text_lengths", "200-byte text in, its length out, Parquet", MILLION, _text_lengths, TEXTS),
    _vectors(
        "stream", f"{_LIGHT} x+1, stream of {MANY_FILES.files} batches", 100_000, _stream, MANY_FILES, target=STREAM
    ),
    _vectors("one_row", f"{_LIGHT} x+1, one row", 1, _one_row),
    _vectors("ten_columns", "ten columns passed through, Parquet", MILLION, _ten_columns, WIDE),
    _vectors("pandas_add", "pandas_udf x+1, range", 5 * MILLION, _pandas_add),
    _vectors("pandas_iterator", "pandas_udf iterator x+1, range", 5 * MILLION, _pandas_iterator),
    _vectors("arrow_iterator", "arrow_udf iterator x+1, range", 5 * MILLION, _arrow_iterator, since=(4, 1)),
    Case("pickled", "plain pickled udf, range", MILLION, _pickled, target=HEAVY),
    _vectors("cpu_bound", "CPU-bound Python UDF, range", MILLION // 5, _cpu_bound, target=HEAVY),
    _vectors(
        "repeated_values",
        "1,000 values, each called once",
        MILLION,
        partial(_slow, values=1000),
        target=REPEATED,
        confs={_ONCE: "on"},
    ),
    _vectors("distinct_values", "no value repeats, auto", MILLION, _slow, target=HEAVY, confs={_ONCE: "auto"}),
    _vectors("broadcast", "pandas_udf with a broadcast array", 2 * MILLION, _broadcast),
]
