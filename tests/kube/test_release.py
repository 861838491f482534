# SPDX-License-Identifier: Apache-2.0
"""Executors in pods run a job on an installed release, and no operation on the release fails a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.kube import flights
from tests.kube.cluster import Release
from tests.kube.jobs import SUM, total, totals_while, tripled
from tests.programs.demo.data import prepare
from tests.programs.demo.example import example
from tests.support.spark import executed_plan, flight_operators
from tests.support.waiting import until

_POOL = "pool-default"
_PODS, _TASKS = 4, 16
_SCALED_SECONDS = 120
# Value whose change makes new pods.
_ROUND = "common.podTemplate.metadata.annotations.round"
# The job rounds to hundredths of a minute.
_ROUNDED = 0.0051


def test_the_demos_job_runs_on_the_pool_and_is_written_through_the_writer(spark: SparkSession, tables: Path) -> None:
    job, directory = example(), prepare(tables / "demo")
    model = job.fitted_model(spark.read.parquet(f"{directory}/flights.parquet"))
    expected = flights.scored(job, model, directory)
    delays = job.delays_by_maker(spark, str(directory), model)
    answer = {maker: tuple(row) for maker, *row in delays.collect()}
    wanted = flights.delays_by_maker(job, expected, directory)
    assert flight_operators(executed_plan(delays))
    assert answer == {maker: pytest.approx(row, abs=_ROUNDED) for maker, row in wanted.items()}
    files = tables / "scored"
    job.scored(spark, str(directory), model).write.format("updraft-parquet").partitionBy("month").save(str(files))
    written = spark.read.parquet(str(files)).agg(F.count("*"), F.sum("expected")).first()
    assert tuple(written or ()) == pytest.approx((len(expected), expected["expected"].sum()))


def test_tasks_spread_over_pods(spark: SparkSession, release: Release) -> None:
    release.scale(_POOL, _PODS)
    before = release.exchanges_by_pod(_POOL)
    assert total(tripled(spark, _TASKS)) == SUM
    served = {pod: count - before[pod] for pod, count in release.exchanges_by_pod(_POOL).items()}
    share = _TASKS / _PODS
    assert sum(served.values()) == _TASKS
    assert all(share / 2 <= count <= share * 2 for count in served.values()), served


@pytest.mark.parametrize(
    "operation",
    [
        lambda release: (release.scale(_POOL, 2), release.scale(_POOL, 4), release.scale(_POOL, 2)),
        lambda release: release.upgrade(**{_ROUND: "two"}),
        lambda release: release.rollback(),
        lambda release: release.upgrade_as_the_guide_says(**{_ROUND: "as the guide says"}),
    ],
    ids=["scaled up and down", "upgraded", "rolled back", "upgraded as the guide says"],
)
def test_no_task_fails_while_the_release_is(
    spark: SparkSession, release: Release, operation: Callable[[Release], object]
) -> None:
    assert totals_while(spark, lambda: operation(release)) == {SUM}


def test_no_task_fails_while_autoscaling_is_switched_on_and_an_upgrade_keeps_its_pods(
    spark: SparkSession, release: Release
) -> None:
    autoscaling = {"mode": "hpa", "minReplicas": "2", "maxReplicas": "4"}
    values = {f"pools.default.autoscaling.{name}": value for name, value in autoscaling.items()}
    assert totals_while(spark, lambda: release.upgrade(**values)) == {SUM}
    until("the HPA has brought its minimum", lambda: release.wanted_pods(_POOL) == 2, timeout_seconds=_SCALED_SECONDS)
    release.scale(_POOL, 3)
    release.upgrade(**values, **{_ROUND: "three"})
    assert release.wanted_pods(_POOL) == 3
    release.upgrade()


def test_uninstalling_leaves_nothing(spark: SparkSession, release: Release) -> None:
    assert release.uninstall() == []
