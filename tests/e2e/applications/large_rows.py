# SPDX-License-Identifier: Apache-2.0
"""Rows that are larger than a message, through functions of each family and into a file.

The driver has more memory than that of the other tests: stock needs twenty times the row and more.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.support.spark import ENABLED, local_spark

_DRIVER_BYTES_PER_TEXT_BYTE = 20
_PIECE = "abcdefg" * 1000


def _with_bang(values: Any) -> Any:
    if isinstance(values, pa.Array):
        return pa.array([value + "!" for value in values.to_pylist()], pa.string())
    return values + "!"


def _in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"r": frame["t"] + "!"})


def _of_group(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"r": frame["t"] + "!"})


class _Banged:
    def eval(self, text: str) -> Iterator[tuple[str]]:
        yield (text + "!",)


def _pandas(rows: DataFrame) -> DataFrame:
    def banged(texts: pd.Series) -> pd.Series:
        return texts + "!"

    return rows.select(F.pandas_udf(banged, "string")("t").alias("r"))


def _table(rows: DataFrame, *, use_arrow: bool) -> DataFrame:
    function = F.udtf(_Banged, returnType="r string", useArrow=use_arrow)
    return rows.lateralJoin(function(F.col("t").outer()))


KINDS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "pickled": lambda rows: rows.select(F.udf(_with_bang, "string", useArrow=False)("t").alias("r")),
    "arrow-optimized": lambda rows: rows.select(F.udf(_with_bang, "string", useArrow=True)("t").alias("r")),
    "pandas": _pandas,
    "mapInPandas": lambda rows: rows.mapInPandas(_in_pandas, "r string"),
    "applyInPandas": lambda rows: rows.groupBy("id").applyInPandas(_of_group, "r string"),
    "pickled table function": lambda rows: _table(rows, use_arrow=False),
    "table function in Arrow": lambda rows: _table(rows, use_arrow=True),
}
WRITE = "write"


def large_text(text_bytes: int) -> Column:
    """Return a text of at least this size, made where the row is; Spark would put a constant text into the plan."""
    return F.repeat(F.concat(F.lit(_PIECE), F.col("id").cast("string")), -(-text_bytes // len(_PIECE)))


def _texts(spark: SparkSession, text_bytes: int) -> DataFrame:
    """Return a large row between small ones."""
    text = F.when(F.col("id") == 1, large_text(text_bytes)).otherwise("small")
    return spark.range(0, 3, 1, 1).select("id", text.alias("t"))


def _seen(frame: DataFrame) -> Sequence[Row]:
    """Return what is compared of an answer; collecting all of it takes several times its memory."""
    seen = frame.select(F.length("r").alias("n"), F.substring("r", -4, 4).alias("end"), F.md5("r").alias("digest"))
    return list(seen.orderBy("n", "digest").collect())


def _by_function(spark: SparkSession, kind: str, text_bytes: int) -> str:
    answers = []
    for enabled in ("false", "true"):
        spark.conf.set(ENABLED, enabled)
        frame = KINDS[kind](_texts(spark, text_bytes))
        on_the_pool = "Flight" in frame._jdf.queryExecution().executedPlan().toString()
        if on_the_pool != (enabled == "true"):
            return f"with {ENABLED} = {enabled}, on the pool: {on_the_pool}"
        answers.append(_seen(frame))
    stock, ours = answers
    large = max(row["n"] for row in stock)
    if large < text_bytes:
        return f"stock has {large} characters at most"
    return "" if stock == ours else f"stock has {stock}, Updraft {ours}"


def _by_writer(spark: SparkSession, text_bytes: int, path: Path) -> str:
    rows = _texts(spark, text_bytes)
    rows.coalesce(1).write.format("updraft-parquet").save(str(path))
    given, written = (_seen(frame.withColumnRenamed("t", "r")) for frame in (rows, spark.read.parquet(str(path))))
    return "" if given == written else f"{given} was written, {written} read"


def _case(spark: SparkSession, case: str, text_bytes: int, place: Path) -> str:
    try:
        return _by_writer(spark, text_bytes, place / "rows") if case == WRITE else _by_function(spark, case, text_bytes)
    except Exception as error:
        return str(error)


def main() -> None:
    pool, writer, place, text_bytes = sys.argv[1:5]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    confs = {
        "spark.master": "local[1]",
        "spark.driver.memory": f"{(1 << 30) + _DRIVER_BYTES_PER_TEXT_BYTE * int(text_bytes) >> 20}m",
        "spark.updraft.udf.endpoint": pool,
        "spark.updraft.write.endpoint": writer,
    }
    spark = local_spark("large-rows", connector=True, conf=confs)
    try:
        found = {case: _case(spark, case, int(text_bytes), Path(place)) for case in sys.argv[5:]}
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
