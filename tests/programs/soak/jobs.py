# SPDX-License-Identifier: Apache-2.0
"""The jobs of the soak, each of which knows the value of every row of its answer."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS = 20_000
_PARTITIONS = 4
_GROUPS = 97
_PRIME = 1_000_003
_numbers = itertools.count()


@dataclass
class Checked:
    """What was wrong with one answer; all zero when it was right."""

    rows: int = 0
    wrong: int = 0
    lost: int = 0
    duplicated: int = 0

    def add(self, other: Checked) -> None:
        """Sum up."""
        self.rows += other.rows
        self.wrong += other.wrong
        self.lost += other.lost
        self.duplicated += other.duplicated

    @property
    def is_right(self) -> bool:
        """Whether every row was there once with its value."""
        return not (self.wrong or self.lost or self.duplicated)


def checked(answer: pa.Table, expected: pd.Series) -> Checked:
    """Compare the columns `id` and `value` with the value that each id must have."""
    ids = answer["id"].to_numpy()
    values = answer["value"].to_numpy()
    known = np.isin(ids, expected.index)
    right = expected.reindex(ids[known]).to_numpy() == values[known]
    distinct = len(np.unique(ids))
    return Checked(
        rows=len(ids),
        wrong=int((~known).sum() + (~right).sum()),
        lost=len(expected) - len(np.intersect1d(ids, expected.index)),
        duplicated=len(ids) - distinct,
    )


def _value(ids: np.ndarray[tuple[int], np.dtype[np.int64]], salt: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (ids * 31 + salt) % _PRIME


def _expected(salt: int) -> pd.Series:
    ids = np.arange(ROWS, dtype=np.int64)
    return pd.Series(_value(ids, salt), index=ids)


def _source(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, _PARTITIONS)


def _pandas_udf(spark: SparkSession, salt: int, _: Path) -> Checked:
    def valued(ids: pd.Series) -> pd.Series:
        return (ids * 31 + salt) % _PRIME

    frame = _source(spark).select("id", F.pandas_udf(valued, "bigint")("id").alias("value"))
    return checked(frame.toArrow(), _expected(salt))


def _arrow_udf(spark: SparkSession, salt: int, _: Path) -> Checked:
    def valued(ids: pa.Array) -> pa.Array:
        product = pc.add(pc.multiply(ids, 31), salt)
        return pc.subtract(product, pc.multiply(pc.divide(product, _PRIME), _PRIME))

    function = F.arrow_udf(valued, "bigint", F.ArrowUDFType.SCALAR)
    return checked(_source(spark).select("id", function("id").alias("value")).toArrow(), _expected(salt))


def _map_in_pandas(spark: SparkSession, salt: int, _: Path) -> Checked:
    def valued(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(value=(frame["id"] * 31 + salt) % _PRIME)

    return checked(_source(spark).mapInPandas(valued, "id bigint, value bigint").toArrow(), _expected(salt))


def _grouped(spark: SparkSession, salt: int, _: Path) -> Checked:
    def summed(frame: pd.DataFrame) -> pd.DataFrame:
        total = ((frame["id"] * 31 + salt) % _PRIME).sum()
        return pd.DataFrame({"id": [frame["id"].iloc[0] % _GROUPS], "value": [total]})

    groups = _source(spark).groupBy((F.col("id") % _GROUPS).alias("k"))
    answer = groups.applyInPandas(summed, "id bigint, value bigint").toArrow()
    expected = _expected(salt)
    return checked(answer, expected.groupby(expected.index % _GROUPS).sum())


def _written(spark: SparkSession, salt: int, directory: Path) -> Checked:
    path = directory / f"written-{next(_numbers)}"
    valued = F.pmod(F.col("id") * 31 + F.lit(salt), F.lit(_PRIME)).cast("bigint")
    try:
        _source(spark).select("id", valued.alias("value")).write.format("updraft-parquet").save(str(path))
        return checked(pq.read_table(path), _expected(salt))
    finally:
        shutil.rmtree(path, ignore_errors=True)


JOBS: dict[str, Callable[[SparkSession, int, Path], Checked]] = {
    "pandas_udf": _pandas_udf,
    "arrow_udf": _arrow_udf,
    "map_in_pandas": _map_in_pandas,
    "grouped": _grouped,
    "written": _written,
}
