# SPDX-License-Identifier: Apache-2.0
"""Spark jobs while processes of the pool are killed at random moments: the answer stays right."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.faults.conftest import WORKERS
from tests.faults.victims import VICTIMS, is_whole, kill, wait_until_whole
from tests.support.killer import Killer
from tests.support.pool import LocalPool
from tests.support.ports import free_ports
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, flight_operators, runtime_confs
from tests.support.waiting import HANG_SECONDS, until

_ROWS = 400_000
_PARTITIONS = 4
# Batches so slow that a run lasts through several kills, and so small that every kill interrupts a batch.
_CONFS = {ENABLED: "true", "spark.sql.execution.arrow.maxRecordsPerBatch": "2000"}
# Attempts per task, as in conftest.
_TRIES = 4


def _slow_square(values: pa.Array) -> pa.Array:
    time.sleep(0.02)
    return pc.multiply(values, values)


def _map_squares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.02)
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), batch.column(0))], ["square"])


def _scalar(spark: SparkSession) -> DataFrame:
    square = F.arrow_udf(_slow_square, "bigint", F.ArrowUDFType.SCALAR)
    return spark.range(0, _ROWS, 1, _PARTITIONS).select(square("id").alias("square"))


def _pickled(spark: SparkSession) -> DataFrame:
    square = F.udf(lambda x: x * x, "bigint", useArrow=False)
    return spark.range(0, _ROWS, 1, _PARTITIONS).select(square("id").alias("square"))


def _mapped(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, _PARTITIONS).mapInArrow(_map_squares, "square bigint")


QUERIES: dict[str, Callable[[SparkSession], DataFrame]] = {
    "scalar": _scalar,
    "pickled": _pickled,
    "mapped": _mapped,
}


def _assert_right(query: Callable[[SparkSession], DataFrame], spark: SparkSession, pool: LocalPool) -> None:
    with runtime_confs(spark, {**_CONFS, ENDPOINT: pool.tcp_endpoint}):
        frame = query(spark)
        rows = frame.toArrow()
    assert flight_operators(executed_plan(frame))
    assert rows.num_rows == _ROWS
    ids = np.arange(_ROWS)
    assert np.array_equal(rows["square"].to_numpy(), ids * ids), "rows are wrong or out of order"


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("query", QUERIES)
def test_a_kill_at_a_random_moment_changes_no_row(
    spark: SparkSession, pool: LocalPool, query: str, victim: str
) -> None:
    chance = random.Random(f"{query}{victim}")

    def strike() -> None:
        time.sleep(chance.uniform(0.2, 1.0))
        wait_until_whole(pool, kill(pool, victim), WORKERS)

    with ThreadPoolExecutor(1) as thread:
        struck = thread.submit(strike)
        _assert_right(QUERIES[query], spark, pool)
        struck.result()


@pytest.mark.parametrize(("declared", "attempt"), [("true", 0), ("false", 1)], ids=["declared", "not declared"])
def test_a_function_declared_deterministic_starts_again_in_the_same_attempt_of_its_task(
    spark: SparkSession, pool: LocalPool, tmp_path: Path, declared: str, attempt: int
) -> None:
    struck = tmp_path / "struck"

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken = [next(batches), next(batches)]
        if not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        context = TaskContext.get()
        assert context is not None
        for batch in (*taken, *batches):
            attempts = pa.repeat(context.attemptNumber(), batch.num_rows)
            yield pa.RecordBatch.from_arrays([batch.column(0), attempts], ["id", "attempt"])

    confs = {**_CONFS, ENDPOINT: pool.tcp_endpoint, "spark.updraft.udf.deterministic": declared}
    with runtime_confs(spark, confs):
        rows = spark.range(0, 20_000, 1, 1).mapInArrow(dies_once, "id bigint, attempt bigint").toArrow()
    assert rows["id"].to_pylist() == list(range(20_000))
    assert set(rows["attempt"].to_pylist()) == {attempt}


def _once_whole(pool: LocalPool, victims: Sequence[psutil.Process]) -> Sequence[psutil.Process]:
    """Return no victim while the pool recovers; otherwise a slow recovery would never end, and no query would run."""
    return victims if is_whole(pool, WORKERS) else []


def test_a_worker_killed_every_second_changes_no_row(spark: SparkSession, pool: LocalPool) -> None:
    with Killer(lambda: _once_whole(pool, pool.workers()), every_seconds=1.0) as killer:
        while len(killer.killed) < 3:
            _assert_right(_scalar, spark, pool)


def test_any_process_killed_every_few_seconds_changes_no_row(spark: SparkSession, pool: LocalPool) -> None:
    def anyone() -> Sequence[psutil.Process]:
        return _once_whole(pool, [process for process in (pool.front(), pool.zygote(), *pool.workers()) if process])

    # Kill more slowly than five times in ten seconds, after which a supervisor gives up.
    with Killer(anyone, every_seconds=2.6, seed=7) as killer:
        while len(killer.killed) < 3:
            _assert_right(_scalar, spark, pool)


class _DiesWhenItIsUnpickled:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, ("__import__('os').kill(__import__('os').getpid(), 9)",)


def _dies_at_work(values: pa.Array) -> pa.Array:
    os.kill(os.getpid(), signal.SIGKILL)
    return values


def _dies_before_it_works() -> Callable[[pa.Array], pa.Array]:
    poison = _DiesWhenItIsUnpickled()

    def poisoned(values: pa.Array) -> pa.Array:
        return values if poison else None

    return poisoned


@pytest.mark.parametrize(
    ("function", "blamed"),
    [
        (_dies_at_work, "batch 1 killed two workers.*SIGKILL"),
        (_dies_before_it_works(), "the function killed two workers before its first batch.*SIGKILL"),
    ],
    ids=["at work", "when it is unpickled"],
)
def test_a_session_function_that_kills_its_workers_kills_two_for_each_try_of_its_task(
    spark: SparkSession, pool: LocalPool, function: Callable[[pa.Array], pa.Array], blamed: str
) -> None:
    confs = {**_CONFS, ENDPOINT: pool.tcp_endpoint}
    with runtime_confs(spark, confs), pytest.raises(Exception, match=blamed):
        spark.range(0, 100, 1, 1).select(F.arrow_udf(function, "bigint", F.ArrowUDFType.SCALAR)("id")).collect()
    until("the pool has said so", lambda: pool.log().count("WorkerError") >= 2 * _TRIES)
    assert pool.log().count("WorkerError") == 2 * _TRIES
    _assert_right(_scalar, spark, pool)


def test_a_large_function_of_a_task_that_is_refused_at_first_gives_the_right_answer(spark: SparkSession) -> None:
    # Smaller than a pickle that Spark broadcasts, larger than what a client sends before admission.
    ballast = random.Random(3).randbytes(700_000)

    def measured(values: pa.Array) -> pa.Array:
        return pc.add(values, len(ballast))

    with LocalPool(workers=1, arguments=["--queue-limit", "0"]) as pool:
        with runtime_confs(spark, {**_CONFS, ENDPOINT: pool.tcp_endpoint}):
            frame = spark.range(0, 20_000, 1, 8).select(
                F.arrow_udf(measured, "bigint", F.ArrowUDFType.SCALAR)("id").alias("sum")
            )
            rows = frame.toArrow()
        assert flight_operators(executed_plan(frame))
        assert rows["sum"].to_pylist() == list(range(700_000, 720_000))
        assert "PoolFullError" in pool.log()


def test_a_pool_that_restarts_costs_a_query_time_and_nothing_else(spark: SparkSession) -> None:
    address = f"127.0.0.1:{next(free_ports())}"
    arguments = ["--listen", address]
    confs = {**_CONFS, ENDPOINT: f"grpc://{address}", "spark.updraft.udf.connectTimeout": "2s"}
    with runtime_confs(spark, confs), ThreadPoolExecutor(1) as thread:
        with LocalPool(arguments=arguments):
            assert len(_scalar(spark).limit(1).collect()) == 1
        waiting = thread.submit(lambda: len(_scalar(spark).limit(1).collect()))
        # Wait much longer than the connect timeout, and longer than the driver caches an answer.
        with pytest.raises(TimeoutError):
            waiting.result(timeout=8)
        with LocalPool(arguments=arguments):
            assert waiting.result(timeout=HANG_SECONDS) == 1
