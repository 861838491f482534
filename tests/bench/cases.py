# SPDX-License-Identifier: Apache-2.0
"""What is measured: each case is one query, with its UDF or with the UDF's argument in its place.

`driver.py` runs the cases in a Spark of its own; `udf.py` compares them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_PARTITIONS = 4
_MILLION = 1_000_000
_STRING_BYTES = 100
_PASSED_COLUMNS = 10
_SLEEP_SECONDS = 0.010

Use = Callable[[Any], Callable[..., Column]]


@dataclass(frozen=True)
class Case:
    """`build(spark, directory, rows, use)`: `use` wraps each UDF, and replaces it where none is to run."""

    name: str
    title: str
    rows: int
    build: Callable[[SparkSession, Path, int, Use], DataFrame]


def with_udf(function: Any) -> Callable[..., Column]:
    """The query as it is."""
    return function  # type: ignore[no-any-return]


def without_udf(function: Any) -> Callable[..., Column]:
    """The same query with the UDF's first argument in place of its result."""
    return lambda column, *_: F.col(column)


def _add_one(values: pa.Array) -> pa.Array:
    return pc.add(values, 1)


def _upper(values: pa.Array) -> pa.Array:
    return pc.utf8_upper(values)


def _add_one_in_pandas(values: pd.Series) -> pd.Series:
    return values + 1


def _sleep(values: pa.Array) -> pa.Array:
    time.sleep(_SLEEP_SECONDS)
    return values


def _mixed(x: int) -> int:
    for _ in range(60):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
    return x


def _arrow(function: Callable[[pa.Array], pa.Array], result: str = "bigint") -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.SCALAR)


def _range(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, _PARTITIONS)


def _parquet(spark: SparkSession, directory: Path, name: str, rows: int) -> DataFrame:
    return spark.read.parquet(str(directory / f"{name}-{rows}"))


def _parquet_add(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    return _parquet(spark, directory, "numbers", rows).select(use(_arrow(_add_one))("a").alias("x"))


def _range_add(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    return _range(spark, rows).select(use(_arrow(_add_one))("id").alias("x"))


def _three_columns(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    add = use(_arrow(_add_one))
    return _parquet(spark, directory, "numbers", rows).select(*(add(name).alias(f"x_{name}") for name in "abc"))


def _strings(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    return _parquet(spark, directory, "strings", rows).select(use(_arrow(_upper, "string"))("text").alias("x"))


def _ten_columns(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    return _parquet(spark, directory, "wide", rows).select("*", use(_arrow(_add_one))("a").alias("x"))


def _pandas_add(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    add = F.pandas_udf(_add_one_in_pandas, "bigint", F.PandasUDFType.SCALAR)
    return _range(spark, rows).select(use(add)("id").alias("x"))


def _pickled(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    add = F.udf(lambda x: x + 1, "bigint", useArrow=False)
    return _range(spark, rows).select(use(add)("id").alias("x"))


def _cpu_bound(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    mixed = F.udf(_mixed, "bigint", useArrow=True)
    return _range(spark, rows).select(use(mixed)("id").alias("x"))


def _sleeping(spark: SparkSession, directory: Path, rows: int, use: Use) -> DataFrame:
    return _range(spark, rows).select(use(_arrow(_sleep))("id").alias("x"))


CASES = [
    Case("parquet_add", "x+1, Parquet", 5 * _MILLION, _parquet_add),
    Case("range_add", "x+1, range", 5 * _MILLION, _range_add),
    Case("three_columns", "three UDF columns, Parquet", 5 * _MILLION, _three_columns),
    Case("strings", "100-byte strings to upper case, Parquet", _MILLION, _strings),
    Case("ten_columns", "ten columns passed through, Parquet", _MILLION, _ten_columns),
    Case("pandas_add", "pandas_udf x+1, range", 5 * _MILLION, _pandas_add),
    Case("pickled", "plain pickled udf, range", _MILLION, _pickled),
    Case("cpu_bound", "CPU-bound Python UDF, range", _MILLION // 5, _cpu_bound),
    Case("sleeping", "10 ms of sleep per batch, range", _MILLION, _sleeping),
]


def write_data(directory: Path, cases: list[Case], scale: float) -> None:
    """Write the Parquet inputs of `cases` that are not there yet."""
    makers = {
        "parquet_add": ("numbers", _numbers),
        "three_columns": ("numbers", _numbers),
        "strings": ("strings", _texts),
        "ten_columns": ("wide", _wide),
    }
    for case in cases:
        if case.name not in makers:
            continue
        name, make = makers[case.name]
        rows = scaled(case, scale)
        target = directory / f"{name}-{rows}"
        if not target.exists():
            _write(make(rows), target)


def scaled(case: Case, scale: float) -> int:
    """Rows of a case at a scale."""
    return max(1, int(case.rows * scale))


def _write(table: pa.Table, target: Path) -> None:
    partial = target.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    rows = -(-table.num_rows // _PARTITIONS)
    for index in range(_PARTITIONS):
        pq.write_table(table.slice(index * rows, rows), partial / f"part-{index}.parquet", use_dictionary=False)
    partial.rename(target)


def _numbers(rows: int) -> pa.Table:
    chance = np.random.default_rng(1)
    return pa.table({name: chance.integers(0, 2**40, rows) for name in "abc"})


def _texts(rows: int) -> pa.Table:
    letters = np.random.default_rng(2).integers(97, 123, rows * _STRING_BYTES, dtype=np.uint8)
    offsets = np.arange(0, (rows + 1) * _STRING_BYTES, _STRING_BYTES, dtype=np.int32)
    return pa.table({"text": pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))})


def _wide(rows: int) -> pa.Table:
    chance = np.random.default_rng(3)
    passed = {f"p{index}": chance.random(rows) for index in range(_PASSED_COLUMNS - 1)}
    text = pa.array([f"row {index}" for index in range(rows)])
    return pa.table({"a": chance.integers(0, 2**40, rows), **passed, "text": text})
