# SPDX-License-Identifier: Apache-2.0
"""Time that a task waits for a pool, and its error afterwards, which names the deciding setting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.flight import pool_status
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs
from tests.support.waiting import until

_PREFIX = "spark.updraft.udf"


@pytest.fixture(autouse=True, scope="module")
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


@contextmanager
def _pool(*arguments: str) -> Iterator[LocalPool]:
    with LocalPool(workers=1, notes=NOTES, arguments=arguments) as pool:
        yield pool


def _waiting_for(file: Path) -> Callable[[int], int]:
    def waits(x: int) -> int:
        while not file.exists():
            time.sleep(0.02)
        return x

    return waits


def _rows(spark: SparkSession, function: Callable[[int], int]) -> DataFrame:
    return spark.range(0, 1, 1, 1).select(F.udf(function, "bigint", useArrow=False)("id"))


def _confs(pool: LocalPool, **settings: str) -> dict[str, str]:
    return {ENABLED: "true", ENDPOINT: pool.tcp_endpoint, **{f"{_PREFIX}.{key}": settings[key] for key in settings}}


def _error(spark: SparkSession, pool: LocalPool, function: Callable[[int], int], **settings: str) -> str:
    with runtime_confs(spark, _confs(pool, **settings)), pytest.raises(Exception, match="on the pool at") as caught:
        _rows(spark, function).collect()
    return str(caught.value)


@contextmanager
def _busy(pool: LocalPool) -> Iterator[Callable[[], None]]:
    """Hold the pool's only worker by another client until the block ends or the yielded function is called."""
    with flight.connect(pool.tcp_endpoint) as client:
        writer, _ = client.do_exchange(flight.FlightDescriptor.for_path("echo"))
        writer.begin(pa.schema([("x", pa.int64())]))
        until("the worker is busy", lambda: pool_status(pool.tcp_address).workers_busy == 1)
        try:
            yield writer.done_writing
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"replyTimeout": "500ms"}, f"showed no progress for 0.5 s ({_PREFIX}.replyTimeout)"),
        ({"deadline": "500ms"}, f"took longer than 0.5 s ({_PREFIX}.deadline)"),
        # The deadline passes before the call begins.
        ({"deadline": "1ms"}, f"took longer than 0.001 s ({_PREFIX}.deadline)"),
    ],
    ids=["reply", "deadline", "deadline-at-once"],
)
def test_a_task_that_waits_no_longer_names_the_setting(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    with _pool() as pool:
        assert told in _error(spark, pool, _waiting_for(tmp_path / "never"), **settings)


def test_a_task_that_is_turned_away_by_a_full_queue_names_the_setting(spark: SparkSession) -> None:
    with _pool("--queue-limit", "0") as pool, _busy(pool):
        error = _error(spark, pool, lambda x: x, acquireTimeout="1s")
    assert f"gave no worker within 1.0 s ({_PREFIX}.acquireTimeout)" in error


def test_a_task_that_is_turned_away_for_another_reason_is_not_told_of_a_small_pool(spark: SparkSession) -> None:
    # Every write to this device fails as on a full disk.
    with _pool("--audit-file", "/dev/full") as pool:
        error = _error(spark, pool, lambda x: x, acquireTimeout="1s")
    assert f"gave no worker within 1.0 s ({_PREFIX}.acquireTimeout); it took no work in that time" in error
    assert "it cannot write its audit log (No space left on device)" in error


def test_a_task_in_the_queue_waits_for_longer_than_the_acquire_timeout(spark: SparkSession) -> None:
    rows = list[tuple[int, ...]]()
    with _pool() as pool, _busy(pool) as end, runtime_confs(spark, _confs(pool, acquireTimeout="500ms")):
        frame = _rows(spark, lambda x: x + 1)
        frame._jdf.queryExecution().executedPlan()
        task = threading.Thread(target=lambda: rows.extend(map(tuple, frame.collect())))
        task.start()
        until("the task is in the queue", lambda: pool_status(pool.tcp_address).exchanges_waiting == 1)
        passed = time.monotonic() + 1
        until("the timeout has passed", lambda: time.monotonic() > passed)
        assert pool_status(pool.tcp_address).exchanges_waiting == 1
        end()
        task.join()
    assert rows == [(1,)]


def test_smaller_batches_let_results_through_that_are_larger_than_a_message_together(spark: SparkSession) -> None:
    rows, result_bytes = 1000, 5 << 10
    with _pool("--max-message-bytes", str(1 << 20)) as pool:
        confs = {**_confs(pool, batchBytes="1k"), "spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
        with runtime_confs(spark, confs):
            text = F.udf(lambda x: "y" * result_bytes, "string", useArrow=True)
            lengths = spark.range(0, rows, 1, 1).select(F.length(text("id"))).collect()
    assert [row[0] for row in lengths] == [result_bytes] * rows
