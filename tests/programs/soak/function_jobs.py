# SPDX-License-Identifier: Apache-2.0
"""Jobs of the soak with functions that the connector's operators run, and with files that a writer stores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.programs.soak.job import ANSWER, BY_GROUP, BY_PARTITION, PRIME, ROWS, Job, attempt, value
from tests.support.invariants import Invariants


def _pandas_udf(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pd.Series, number: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"value": value(task, number, salt), "attempt": attempt()})

    function = F.pandas_udf(valued, "value bigint, attempt bigint")
    return job.answered(_with(job.partitions(), function).toArrow(), BY_PARTITION, invariants)


def _arrow_udf(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pa.Array, number: pa.Array) -> pa.Array:
        product = pc.add(pc.multiply(pc.add(pc.multiply(task, ROWS), number), 31), salt)
        values = pc.subtract(product, pc.multiply(pc.divide(product, PRIME), PRIME))
        return pa.StructArray.from_arrays([values, pa.repeat(attempt(), len(values))], ["value", "attempt"])

    function = F.arrow_udf(valued, "value bigint, attempt bigint", F.ArrowUDFType.SCALAR)
    return job.answered(_with(job.partitions(), function).toArrow(), BY_PARTITION, invariants)


def _with(frame: DataFrame, function: Callable[..., Column]) -> DataFrame:
    return frame.select("*", function("task", "number").alias("made")).select("*", "made.*").drop("made")


def _map_in_pandas(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(value=value(frame["task"], frame["number"], salt), attempt=attempt())

    return job.answered(job.partitions().mapInPandas(valued, ANSWER).toArrow(), BY_PARTITION, invariants)


def _grouped(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.sort_values("number")
        return frame.assign(value=value(frame["task"], frame["number"], salt), attempt=attempt())

    # Each group is a task.
    return job.answered(job.groups().groupBy("task").applyInPandas(valued, ANSWER).toArrow(), BY_GROUP, invariants)


def _written(job: Job, invariants: Invariants) -> int:
    salt = job.salt

    def valued(task: pd.Series, number: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"value": value(task, number, salt), "attempt": attempt()})

    rows = _with(job.partitions(), F.pandas_udf(valued, "value bigint, attempt bigint"))
    try:
        rows.write.format("updraft-parquet").save(str(job.directory))
        return job.written(invariants)
    finally:
        shutil.rmtree(job.directory, ignore_errors=True)


JOBS: dict[str, Callable[[Job, Invariants], int]] = {
    "pandas_udf": _pandas_udf,
    "arrow_udf": _arrow_udf,
    "map_in_pandas": _map_in_pandas,
    "grouped": _grouped,
    "written": _written,
}
"""Jobs by name. Each job runs, checks its rows, and returns the number of rows."""
