# SPDX-License-Identifier: Apache-2.0
"""A query that no longer needs an answer releases its worker at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Answer, Sides
from tests.support.flight import pool_status
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, cancel_jobs, runtime_confs
from tests.support.waiting import HANG_SECONDS, until


@pytest.fixture(autouse=True)
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


def _idle(pool: LocalPool) -> bool:
    status = pool_status(pool.tcp_address)
    return status.workers_busy == 0 and status.workers_idle >= 2


def _sleeping(marker: Path) -> Column:
    text = str(marker)

    def sleep(x: int) -> int:
        Path(text).touch()
        time.sleep(600)
        return x

    return F.udf(sleep, "bigint", useArrow=False)("id")


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_a_cancelled_job_frees_its_workers(
    sides: Sides, spark: SparkSession, pool: LocalPool, tmp_path: Path, transport: str
) -> None:
    marker = tmp_path / "running"
    failure: list[BaseException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("sleepers", "two tasks that sleep", interruptOnCancel=True)
        try:
            spark.range(0, 10, 1, 2).select(_sleeping(marker)).collect()
        except Exception as error:
            failure.append(error)

    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints[transport]}):
        job = threading.Thread(target=run)
        job.start()
        until("the functions run", marker.exists)
        spark.sparkContext.cancelJobGroup("sleepers")
        job.join(HANG_SECONDS)
    assert not job.is_alive()
    assert failure
    until("the workers are idle", lambda: _idle(pool))


def test_cancelling_all_jobs_waits_until_no_task_runs(
    sides: Sides, spark: SparkSession, pool: LocalPool, tmp_path: Path
) -> None:
    marker = tmp_path / "running"
    answers: list[Answer] = []
    job = threading.Thread(
        target=lambda: answers.append(sides.updraft(lambda spark: spark.range(0, 10, 1, 2).select(_sleeping(marker))))
    )
    job.start()
    until("the functions run", marker.exists)
    cancel_jobs(spark)
    job.join(HANG_SECONDS)
    assert [answer.error is not None for answer in answers] == [True]
    until("the workers are idle", lambda: _idle(pool))


def test_a_limit_frees_the_worker_before_the_input_ends(sides: Sides, pool: LocalPool) -> None:
    def slow(spark: SparkSession) -> DataFrame:
        one_at_a_time = F.udf(_slowly, "bigint", useArrow=False)
        return spark.range(0, 10_000_000, 1, 1).select(one_at_a_time("id").alias("x")).limit(3)

    answer = sides.updraft(slow)
    assert [row[0] for row in answer.rows] == [0, 1, 2]
    until("the workers are idle", lambda: _idle(pool))


def _slowly(x: int) -> int:
    time.sleep(0.001)
    return x


def test_a_failed_task_frees_its_workers(sides: Sides, pool: LocalPool) -> None:
    def fail(x: int) -> int:
        raise ValueError("on purpose")

    answer = sides.updraft(lambda spark: spark.range(0, 10, 1, 2).select(F.udf(fail, "bigint", useArrow=False)("id")))
    assert "on purpose" in str(answer.error)
    until("the workers are idle", lambda: _idle(pool))


def test_a_task_with_a_full_window_waits_longer_for_a_worker_than_for_a_connection(sides: Sides) -> None:
    plus_one = F.pandas_udf(lambda x: x + 1, "bigint")

    def give_the_worker_back() -> None:
        until("the task waits", lambda: pool_status(small.tcp_address).exchanges_waiting == 1)
        # Longer than a connection may take.
        time.sleep(3)
        writer.close()

    with (
        LocalPool(workers=1, notes=NOTES) as small,
        flight.connect(f"grpc://{small.tcp_address}") as client,
        ThreadPoolExecutor(1) as beside,
    ):
        writer, _ = client.do_exchange(flight.FlightDescriptor.for_path("echo"))
        writer.begin(pa.schema([("x", pa.int64())]))
        until("the worker is taken", lambda: pool_status(small.tcp_address).workers_busy == 1)
        given_back = beside.submit(give_the_worker_back)
        answer = sides.updraft(
            lambda spark: spark.range(0, 400_000, 1, 1).select(plus_one("id").alias("x")).agg(F.sum("x")),
            confs={ENDPOINT: small.tcp_endpoint, "spark.updraft.udf.connectTimeout": "2s"},
        )
        given_back.result()
    assert answer.error is None, answer.error
    assert answer.rows == [(sum(range(1, 400_001)),)]


def test_more_tasks_than_workers_wait_for_their_turn(sides: Sides) -> None:
    plus_one = F.udf(lambda x: x + 1, "bigint", useArrow=False)
    with LocalPool(workers=1, notes=NOTES) as small:
        answer = sides.updraft(
            lambda spark: spark.range(0, 1000, 1, 8).select(plus_one("id").alias("x")),
            confs={ENDPOINT: small.tcp_endpoint},
        )
    assert [row[0] for row in answer.rows] == list(range(1, 1001))
