# SPDX-License-Identifier: Apache-2.0
"""Spark jobs whose pool drains before they finish: another pool computes the right answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.faults.conftest import WORKERS
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, flight_operators, runtime_confs
from tests.support.waiting import until

_ROWS = 1000
_BATCH_ROWS = 100
_CONFS = {ENABLED: "true", "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS)}
_HANG_SECONDS = 100


def _held_up(directory: str, first: int) -> None:
    """Wait in the third batch until the test has put the other pool in place."""
    if first < 2 * _BATCH_ROWS:
        return
    Path(directory, "reached").touch()
    while not Path(directory, "go").exists():
        time.sleep(0.01)


def _scalar(frame: DataFrame, directory: str) -> DataFrame:
    def square(values: pd.Series) -> pd.Series:
        _held_up(directory, int(values[0]))
        return values * values

    return frame.select(F.pandas_udf(square, "bigint")("id").alias("square"))


def _mapped(frame: DataFrame, directory: str) -> DataFrame:
    def squares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _held_up(directory, batch.column(0)[0].as_py())
            yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), batch.column(0))], ["square"])

    return frame.mapInArrow(squares, "square bigint")


@pytest.mark.timeout(_HANG_SECONDS)
@pytest.mark.parametrize("query", [_scalar, _mapped], ids=["replayed", "tried_again"])
def test_a_query_that_outlives_a_drain_is_answered_by_another_pool(
    spark: SparkSession, tmp_path: Path, query: Callable[[DataFrame, str], DataFrame]
) -> None:
    with (
        LocalPool(workers=WORKERS, notes=NOTES, arguments=["--drain-timeout-seconds", "0.5"]) as draining,
        LocalPool(workers=WORKERS, notes=NOTES) as other,
    ):
        exits: list[int] = []

        def drain() -> None:
            until("the function works on its third batch", (tmp_path / "reached").exists, timeout_seconds=60)
            exits.append(draining.terminate())
            # Move the other pool's socket to the path at which executors look for their pool.
            other.unix_socket.rename(draining.unix_socket)
            (tmp_path / "go").touch()

        draining_thread = threading.Thread(target=drain)
        draining_thread.start()
        try:
            with runtime_confs(spark, {**_CONFS, ENDPOINT: draining.unix_endpoint}):
                frame = query(spark.range(0, _ROWS, 1, 1), str(tmp_path))
                rows = frame.toArrow()["square"].to_pylist()
        finally:
            (tmp_path / "go").touch()
            draining_thread.join(timeout=60)
        ended = [line for line in draining.log().splitlines() if "exchange ended" in line]
    assert "PoolUnavailableError" in ended[-1]
    assert "another pool can take it" in ended[-1]
    assert flight_operators(executed_plan(frame))
    assert rows == [number * number for number in range(_ROWS)]
    assert exits == [0]
