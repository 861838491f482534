# SPDX-License-Identifier: Apache-2.0
"""Everything a user can see: the plan, fallback reasons, metrics by stock's names, accumulators, prints."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import Accumulator
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.driver_log import driver_log
from tests.e2e.sides import Sides
from tests.support.plan_metrics import metrics_of
from tests.support.pool import LocalPool
from tests.support.spark import (
    ENABLED,
    ENDPOINT,
    executed_plan,
    flight_operators,
    runtime_confs,
    stock_operators,
)
from tests.support.waiting import until

_ROWS = 10_000
_METRICS = (
    "pythonDataSent",
    "pythonDataReceived",
    "pythonNumRowsReceived",
    "pythonBootTime",
    "pythonInitTime",
    "pythonTotalTime",
)


@pytest.fixture(autouse=True)
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


def _plus_one(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, 2).select(F.arrow_udf(_add, "bigint", F.ArrowUDFType.SCALAR)("id").alias("x"))


def _add(values: Any) -> Any:
    import pyarrow.compute as pc

    return pc.add(values, 1)


def test_stocks_python_metrics_are_there_by_name(sides: Sides, spark: SparkSession) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        frame = _plus_one(spark)
        frame.collect()
        metrics = metrics_of(frame, "Flight")
    assert set(_METRICS) <= metrics.keys()
    assert metrics["pythonNumRowsReceived"] == _ROWS
    assert 8 * _ROWS <= metrics["pythonDataSent"] < 16 * _ROWS
    assert 8 * _ROWS <= metrics["pythonDataReceived"] < 16 * _ROWS
    assert 0 < metrics["pythonTotalTime"] < 60_000
    assert metrics["updraftReplays"] == 0


def test_replays_on_another_worker_are_counted(sides: Sides, spark: SparkSession, tmp_path: Path) -> None:
    struck = tmp_path / "struck"

    def dies_once(values: Any) -> Any:
        if not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return values

    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        frame = spark.range(0, 100, 1, 1).select(F.arrow_udf(dies_once, "bigint", F.ArrowUDFType.SCALAR)("id"))
        assert len(frame.collect()) == 100
        metrics = metrics_of(frame, "Flight")
    assert (metrics["updraftReplays"], metrics["updraftExchanges"]) == (1, 1)


def test_explain_shows_where_functions_run(sides: Sides, spark: SparkSession) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        plan = executed_plan(_plus_one(spark))
    assert flight_operators(plan)
    assert sides.endpoints["tcp"] in plan


def test_a_switched_off_extension_leaves_stock_plans(sides: Sides, spark: SparkSession) -> None:
    with runtime_confs(spark, {ENABLED: "false", ENDPOINT: sides.endpoints["tcp"]}):
        plan = executed_plan(_plus_one(spark))
    assert not flight_operators(plan)
    assert stock_operators(plan)


def test_an_unset_endpoint_leaves_stock_plans(spark: SparkSession) -> None:
    spark.conf.unset(ENDPOINT)
    assert stock_operators(executed_plan(_plus_one(spark)))


def _barrier(spark: SparkSession) -> DataFrame:
    return spark.range(4).mapInArrow(lambda batches: batches, "id bigint", barrier=True)


def test_what_a_pool_cannot_take_stays_local_with_the_reason_in_explain(sides: Sides, spark: SparkSession) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        frame = _barrier(spark)
        text = executed_plan(frame)
        rows = frame.collect()
    assert stock_operators(text)
    assert "barrier" in text.lower()
    assert len(rows) == 4


@pytest.mark.parametrize("setting", ["spark.updraft.udf.unsupported", "spark.updraft.udf.fallback"])
def test_what_a_pool_cannot_take_can_mean_an_error(sides: Sides, spark: SparkSession, setting: str) -> None:
    confs = {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"], setting: "fail"}
    with (
        runtime_confs(spark, confs),
        pytest.raises(Exception, match=r"MapInArrow cannot run on the pool: .*\(barrier\)"),
    ):
        _barrier(spark).collect()


def test_accumulators_count_once(sides: Sides, spark: SparkSession) -> None:
    counter: Accumulator[int] = spark.sparkContext.accumulator(0)

    def count(x: int) -> int:
        counter.add(1)
        return x

    sides.updraft(lambda spark: spark.range(0, _ROWS, 1, 2).select(F.udf(count, "bigint", useArrow=False)("id")))
    assert counter.value == _ROWS


def test_what_a_function_prints_reaches_the_pools_log(sides: Sides, pool: LocalPool) -> None:
    def printing(x: int) -> int:
        if x == 7:
            print("seven was here")
            print("and complained", file=sys.stderr)
        return x

    sides.updraft(lambda spark: spark.range(0, 10, 1, 1).select(F.udf(printing, "bigint", useArrow=False)("id")))
    until(
        "the prints are in the log",
        lambda: "seven was here" in pool.log() and "and complained" in pool.log(),
    )


def test_the_worker_is_not_a_child_of_spark(sides: Sides, pool: LocalPool) -> None:
    def worker_pid(x: int) -> int:
        import os

        return os.getpid()

    pid = F.udf(worker_pid, "bigint", useArrow=False)
    answer = sides.updraft(lambda spark: spark.range(4).select(pid("id").alias("p")))
    assert {row[0] for row in answer.rows} <= {member.pid for member in pool.members()}


def test_an_endpoint_where_nobody_listens_fails_with_its_name(spark: SparkSession) -> None:
    confs = {
        ENABLED: "true",
        ENDPOINT: "grpc://127.0.0.1:9",
        "spark.updraft.udf.connectTimeout": "1s",
        "spark.updraft.udf.acquireTimeout": "1s",
    }
    with runtime_confs(spark, confs), pytest.raises(Exception, match=r"127\.0\.0\.1:9") as caught:
        _plus_one(spark).collect()
    assert ENDPOINT in str(caught.value)


def test_an_endpoint_where_nobody_listens_can_mean_local(spark: SparkSession) -> None:
    confs = {
        ENABLED: "true",
        ENDPOINT: "grpc://127.0.0.1:9",
        "spark.updraft.udf.connectTimeout": "1s",
        "spark.updraft.udf.acquireTimeout": "1s",
        "spark.updraft.udf.fallback": "local",
    }
    with runtime_confs(spark, confs):
        frame = _plus_one(spark)
        assert len(frame.collect()) == _ROWS
        assert stock_operators(executed_plan(frame))


def _fallen_back() -> dict[str, str]:
    return {
        ENABLED: "true",
        ENDPOINT: "grpc://127.0.0.1:9",
        "spark.updraft.udf.connectTimeout": "1s",
        "spark.updraft.udf.fallback": "local",
    }


_WHY_IT_RAN_THERE = (
    r"The function ran in Spark's own Python worker, with the executor's Python, because the pool is unreachable, .*"
    r"grpc://127\.0\.0\.1:9.*Install what the executor lacks, or run the function on a pool"
)


def test_a_fallback_to_an_executor_without_pyarrow_says_why_it_ran_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An environment without packages, because Spark brings pyspark itself.
    venv.create(tmp_path / "python", symlinks=True)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "python" / "bin" / "python"))
    with runtime_confs(spark, _fallen_back()), pytest.raises(PythonException, match=_WHY_IT_RAN_THERE) as caught:
        _plus_one(spark).collect()
    assert "pyarrow" in str(caught.value).lower()


def test_a_fallback_to_an_executor_without_python_says_why_it_ran_there(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python/here")
    with runtime_confs(spark, _fallen_back()), pytest.raises(Exception, match=_WHY_IT_RAN_THERE) as caught:
        _plus_one(spark).collect()
    assert 'Cannot run program "/no/python/here"' in str(caught.value)


def test_an_endpoint_that_accepts_connections_and_says_nothing_can_mean_local(spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        confs = {
            ENABLED: "true",
            ENDPOINT: f"grpc://127.0.0.1:{silent.getsockname()[1]}",
            "spark.updraft.udf.connectTimeout": "1s",
            "spark.updraft.udf.fallback": "local",
        }
        with runtime_confs(spark, confs):
            frame = _plus_one(spark)
            assert len(frame.collect()) == _ROWS
            plan = executed_plan(frame)
    assert stock_operators(plan)
    assert "did not answer within 1.0 s" in plan
    assert "(unreachable)" in plan


def test_a_misspelt_setting_is_told_once_with_the_nearest_name(spark: SparkSession, tmp_path: Path) -> None:
    misspelt = {ENABLED: "true", "spark.updraft.udf.endpiont": "grpc://127.0.0.1:9"}
    with driver_log(spark, tmp_path / "log") as log, runtime_confs(spark, misspelt):
        for _ in range(2):
            assert stock_operators(executed_plan(_plus_one(spark)))
    told = "spark.updraft.udf.endpiont is not a setting of Updraft and has no effect"
    assert log.read_text().count(f"{told}; did you mean spark.updraft.udf.endpoint?") == 1


def test_a_malformed_endpoint_is_named_with_its_setting(spark: SparkSession) -> None:
    confs = {ENABLED: "true", ENDPOINT: "http://somewhere"}
    with runtime_confs(spark, confs), pytest.raises(Exception, match=ENDPOINT):
        _plus_one(spark).collect()


def test_a_wrong_token_is_refused_in_words(spark: SparkSession, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("the-right-one\n")
    with LocalPool(workers=1, arguments=["--token-file", str(tokens)]) as guarded:
        confs = {ENABLED: "true", ENDPOINT: guarded.tcp_endpoint}
        with runtime_confs(spark, {**confs, "spark.updraft.udf.token": "the-right-one"}):
            assert len(_plus_one(spark).collect()) == _ROWS
        with runtime_confs(spark, {**confs, "spark.updraft.udf.token": "a-wrong-one"}):
            with pytest.raises(Exception, match=r"(?i)unauthenticated|token") as caught:
                _plus_one(spark).collect()
            assert "a-wrong-one" not in str(caught.value)
            # One error of the driver instead of one per task.
            assert "Correct spark.updraft.udf.tokenFile" in str(caught.value)
            with runtime_confs(spark, {"spark.updraft.udf.fallback": "local"}):
                frame = _plus_one(spark)
                assert len(frame.collect()) == _ROWS
            plan = executed_plan(frame)
            assert stock_operators(plan)
            assert "(unauthenticated)" in plan
            assert "a-wrong-one" not in plan


def test_a_function_of_another_python_stays_local_with_the_reason(
    sides: Sides, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "2.7")
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        with runtime_confs(spark, {"spark.updraft.udf.fallback": "local"}):
            plan = executed_plan(_plus_one(spark))
        assert stock_operators(plan)
        assert "the session 2.7" in plan
        assert "(version)" in plan
        with pytest.raises(Exception, match=r"the session 2\.7: .*Set spark\.updraft\.udf\.endpoint to a pool with"):
            _plus_one(spark).collect()


def test_what_a_query_that_needs_the_pool_has_learned_is_not_enough_for_one_that_does_not(
    sides: Sides, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: sides.endpoints["tcp"]}):
        _plus_one(spark).collect()
        # By now the driver's answer has expired: the next query checks only that the pool is reachable.
        time.sleep(6)
        _plus_one(spark).collect()
        monkeypatch.setattr(spark.sparkContext, "pythonVer", "2.7")
        with runtime_confs(spark, {"spark.updraft.udf.fallback": "local"}):
            assert "(version)" in executed_plan(_plus_one(spark))


def test_a_pool_without_session_functions_refuses_them_in_words(spark: SparkSession) -> None:
    with LocalPool(workers=1, session_functions="off") as closed:
        confs = {ENABLED: "true", ENDPOINT: closed.tcp_endpoint}
        with runtime_confs(spark, confs), pytest.raises(Exception, match="--session-functions unsigned or signed"):
            _plus_one(spark).collect()


def test_the_server_says_what_each_setting_means() -> None:
    program = Path(sys.executable).with_name("updraft-server")
    text = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    for option in ("--listen", "--workers", "--session-functions", "--drain-timeout-seconds", "--token-file"):
        assert option in text
