# SPDX-License-Identifier: Apache-2.0
"""Spark's settings for Python workers have the same effect on a pool: task, memory, logs, profiles, timeouts."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Answer, Query, Sides
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool
from tests.support.spark import SPARK_VERSION, runtime_confs, wait_for_listeners
from tests.support.waiting import until

_ROWS = 40
_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
_PROFILER = "spark.sql.pyspark.udf.profiler"
_IDLE_SECONDS = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
_KILL_WHEN_IDLE = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
_DUMP_SECONDS = "spark.sql.execution.pyspark.udf.tracebackDumpIntervalSeconds"
_ANSI = "spark.sql.ansi.enabled"
_TIME_ZONE = "spark.sql.session.timeZone"

since_4_1 = pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="Spark has this setting since 4.1")


def pickled(function: Callable[[int], Any], result: str = "string") -> Query:
    return lambda spark: _numbers(spark).select(F.udf(function, result, useArrow=False)("id").alias("value"))


def arrow_optimised(function: Callable[[int], Any], result: str = "string") -> Query:
    return lambda spark: _numbers(spark).select(F.udf(function, result, useArrow=True)("id").alias("value"))


def over_pandas(function: Callable[[int], Any], result: str = "string") -> Query:
    def series(ids: pd.Series) -> pd.Series:
        return ids.map(function)

    return lambda spark: _numbers(spark).select(F.pandas_udf(series, result)("id").alias("value"))


def in_map(function: Callable[[int], Any], result: str = "string") -> Query:
    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"value": [function(i) for i in batch.column(0).to_pylist()]})

    return lambda spark: _numbers(spark).mapInArrow(mapped, f"value {result}")


KINDS = (pickled, arrow_optimised, over_pandas, in_map)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, 2)


@every_kind
def test_the_task_is_the_same(sides: Sides, kind: Callable[..., Query]) -> None:
    def task(_: int) -> str:
        context = TaskContext.get()
        return f"{context.partitionId()} {context.attemptNumber()} {context.cpus()} {sorted(context.resources())}"

    sides.assert_same(kind(task))


def test_the_task_is_that_of_the_job(sides: Sides, spark: SparkSession) -> None:
    def task(_: int) -> str:
        context = TaskContext.get()
        return f"{context.stageId()} {context.taskAttemptId()} {context.getLocalProperty('spark.jobGroup.id')}"

    spark.sparkContext.setJobGroup("the-task", "looks at its task")
    try:
        rows = sides.updraft(pickled(task)).rows
        wait_for_listeners(spark)
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("the-task")]
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.sparkContext.setLocalProperty("spark.job.description", None)
    stages, attempts, groups = zip(*(str(row[0]).split() for row in rows), strict=True)
    assert {int(stage) for stage in stages} <= {stage for job in jobs if job for stage in job.stageIds}
    assert len(set(attempts)) == 2
    assert set(groups) == {"the-task"}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_the_sessions_time_zone_holds(sides: Sides, zone: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        moment = F.timestamp_seconds(F.col("id") * 3600 + 0.25).alias("moment")
        shown = F.pandas_udf(lambda moments: moments.dt.strftime("%Y-%m-%d %H:%M:%S.%f"), "string")
        return _numbers(spark).select(moment).select(shown("moment").alias("shown"))

    sides.assert_same(query, confs={_TIME_ZONE: zone})


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_ansi_mode_holds_around_a_function(sides: Sides, ansi: str) -> None:
    def query(spark: SparkSession) -> DataFrame:
        text = F.udf(lambda x: "many" if x == 7 else str(x), "string", useArrow=False)("id")
        return _numbers(spark).select(text.cast("int").alias("number"))

    stock, ours = sides.stock(query, {_ANSI: ansi}), sides.updraft(query, confs={_ANSI: ansi})
    assert (ours.error is None, ours.rows) == (stock.error is None, stock.rows)
    assert (stock.error is None) == (ansi == "false")
    sides.assert_ran_on_the_pool(ours)


class Words(AccumulatorParam[list[str]]):  # type: ignore[misc]
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802 - PySpark's name
        return value1 + value2


@every_kind
def test_accumulators_of_any_type_come_back_once(sides: Sides, spark: SparkSession, kind: Callable[..., Query]) -> None:
    number, total, words = (
        spark.sparkContext.accumulator(0),
        spark.sparkContext.accumulator(0.0),
        spark.sparkContext.accumulator([], Words()),
    )

    def count(x: int) -> str:
        number.add(1)
        total.add(x / 2)
        words.add([str(x)])
        return str(x)

    answer = sides.updraft(kind(count))
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert number.value == _ROWS
    assert total.value == sum(range(_ROWS)) / 2
    assert sorted(words.value) == sorted(map(str, range(_ROWS)))


@every_kind
def test_the_profiler_sees_the_function(
    sides: Sides, spark: SparkSession, kind: Callable[..., Query], capsys: pytest.CaptureFixture[str]
) -> None:
    def profiled(x: int) -> str:
        return str(sum(range(x)))

    needs_spark((4, 0), "profilers that a session starts and shows")
    if kind is in_map:
        needs_spark((4, 1), "profiler of functions over iterators")
    spark.profile.clear()
    sides.assert_ran_on_the_pool(sides.updraft(kind(profiled), confs={_PROFILER: "perf"}))
    spark.profile.show(type="perf")
    spark.profile.clear()
    shown = capsys.readouterr().out
    assert "Profile of UDF" in shown
    assert re.search(rf"{_ROWS} +\d.*\(profiled\)", shown)


def _worker_logs(spark: SparkSession) -> list[tuple[str, ...]]:
    with runtime_confs(spark, {_LOGGING: "true"}):
        found = spark.tvf.python_worker_logs().select("level", "logger", "msg").collect()
    return [tuple(row) for row in found]


@since_4_1
@every_kind
def test_worker_logs_are_collected_for_the_session(
    sides: Sides, spark: SparkSession, kind: Callable[..., Query]
) -> None:
    def logs(x: int) -> str:
        if x == 3:
            logging.getLogger("of.the.function").warning("a warning about %s in %s", x, kind.__name__)
            print(f"printed in {kind.__name__}")
        return str(x)

    sides.assert_same(kind(logs), confs={_LOGGING: "true"})
    warning = ("WARNING", "of.the.function", f"a warning about 3 in {kind.__name__}")
    printed = ("INFO", "stdout", f"printed in {kind.__name__}")
    # One line from stock and one from the pool.
    expected = [printed, printed, warning, warning]

    def logged() -> list[tuple[str, ...]]:
        found = sorted(entry for entry in _worker_logs(spark) if kind.__name__ in entry[2])
        return found if len(found) >= len(expected) else []

    # Spark may read what a worker logged after it has read the rows.
    assert until("all is logged", logged) == expected


def _logged_contexts(spark: SparkSession, message: str) -> list[str]:
    with runtime_confs(spark, {_LOGGING: "true"}):
        logs = spark.tvf.python_worker_logs().where(F.col("msg").contains(message))
        return [row[0] for row in logs.select(F.to_json("context")).collect()]


class OfAClass:
    """Function that is an object, and one that is a method."""

    def __call__(self, x: int) -> str:
        logging.getLogger("of.the.class").warning("called of OfAClass")
        return str(x)

    def method(self, x: int) -> str:
        logging.getLogger("of.the.class").warning("method of OfAClass")
        return str(x)


def _logs_in_a_helper(x: int) -> str:
    def helper() -> None:
        print("printed in a helper")

    helper()
    return str(x)


def _logs_itself(x: int) -> str:
    logging.getLogger("of.the.function").warning("logged of itself")
    return str(x)


_LOGGING_FUNCTIONS: dict[str, Callable[[int], str]] = {
    "logged of itself": _logs_itself,
    "printed in a helper": _logs_in_a_helper,
    "called of OfAClass": OfAClass(),
    "method of OfAClass": OfAClass().method,
}


def _kinds_that_log() -> Iterator[Any]:
    """Yield each function that logs where Spark calls it; the others call it themselves, whatever it is."""
    for kind in KINDS:
        for message in _LOGGING_FUNCTIONS if kind in (pickled, arrow_optimised) else list(_LOGGING_FUNCTIONS)[:2]:
            yield pytest.param(kind, message, id=f"{kind.__name__}-{message}")


@since_4_1
@pytest.mark.parametrize(("kind", "message"), list(_kinds_that_log()))
def test_worker_logs_name_the_function_that_logged_as_stock_does(
    sides: Sides, spark: SparkSession, kind: Callable[..., Query], message: str
) -> None:
    query = kind(_LOGGING_FUNCTIONS[message])
    before = Counter(_logged_contexts(spark, message))

    def contexts(side: Callable[..., Answer], **options: Any) -> list[str]:
        assert side(query, **options).error is None

        def logged() -> list[str]:
            found = sorted((Counter(_logged_contexts(spark, message)) - before).elements())
            return found if len(found) >= _ROWS else []

        found = until("each row is logged", logged)
        before.update(found)
        return found

    stock, ours = contexts(sides.stock, confs={_LOGGING: "true"}), contexts(sides.updraft, confs={_LOGGING: "true"})
    assert len(stock) == _ROWS
    assert '"func_name"' in stock[0]
    assert ours == stock


@since_4_1
@pytest.mark.parametrize("conf", ["maxRecordsPerOutputBatch", "maxBytesPerOutputBatch"])
@every_kind
def test_limits_of_output_batches_change_no_result(sides: Sides, conf: str, kind: Callable[..., Query]) -> None:
    # Stock 4.2 itself fails with maxRecordsPerOutputBatch, so the oracle is stock without the setting.
    stock, ours = sides.stock(kind(str)), sides.updraft(kind(str), confs={f"spark.sql.execution.arrow.{conf}": "7"})
    sides.assert_ran_on_the_pool(ours)
    assert ours.rows == stock.rows


def _crashes(x: int) -> str:
    import ctypes

    return str(ctypes.string_at(x))


@pytest.mark.parametrize("kind", [pickled, in_map], ids=lambda kind: kind.__name__)
def test_a_crash_says_where_python_was(sides: Sides, kind: Callable[..., Query]) -> None:
    confs = {"spark.sql.execution.pyspark.udf.faulthandler.enabled": "true"}
    error = str(sides.updraft(kind(_crashes), confs=confs).error)
    assert "Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault" in error
    assert "in _crashes" in error


@since_4_1
def test_a_worker_that_is_idle_for_too_long_is_killed(sides: Sides) -> None:
    def sleeps(x: int) -> str:
        time.sleep(600)
        return str(x)

    answer = sides.updraft(pickled(sleeps), confs={_IDLE_SECONDS: "1", _KILL_WHEN_IDLE: "true"})
    assert "spark.sql.execution.pyspark.udf.idleTimeoutSeconds" in str(answer.error)


@since_4_1
def test_a_function_that_yields_now_and_then_is_not_idle(sides: Sides) -> None:
    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, 2):
                time.sleep(0.7)
                yield batch.slice(start, 2)

    def query(spark: SparkSession) -> DataFrame:
        return _numbers(spark).mapInArrow(slowly, "id bigint")

    answer = sides.updraft(query, confs={_IDLE_SECONDS: "6", _KILL_WHEN_IDLE: "true"})
    sides.assert_ran_on_the_pool(answer)
    assert sorted(row[0] for row in answer.rows) == list(range(_ROWS))


@since_4_1
def test_a_slow_function_dumps_its_stack_to_the_pools_log(sides: Sides, pool: LocalPool) -> None:
    log = str(pool.log_file)

    def dawdles(x: int) -> str:
        if x == 0:
            end = time.monotonic() + 60
            while "in dawdles" not in Path(log).read_text(errors="replace") and time.monotonic() < end:
                time.sleep(0.05)
        return str(x)

    sides.assert_ran_on_the_pool(sides.updraft(pickled(dawdles), confs={_DUMP_SECONDS: "1"}))
    assert "in dawdles" in pool.log_file.read_text(errors="replace"), pool.log()
