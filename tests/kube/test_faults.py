# SPDX-License-Identifier: Apache-2.0
"""Pods that are killed, run out of memory or hang: the answer stays right, and the platform restores the release."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kube import node
from tests.kube.cluster import Release
from tests.kube.jobs import SUM, totals_while
from tests.support.waiting import until

_POOL, _WRITER = "pool-default", "writer"
_TURNED_SECONDS, _HEALED_SECONDS = 60, 180


def test_a_pod_that_is_killed_changes_no_row(spark: SparkSession, release: Release) -> None:
    release.scale(_POOL, 2)
    killed: list[str] = []
    assert totals_while(spark, lambda: killed.append(release.kill_a_busy_pod(_POOL))) == {SUM}
    assert killed[0] not in [pod.metadata.name for pod in release.pods(_POOL)]


def test_workers_that_run_out_of_memory_change_no_row_and_leave_the_front(
    spark: SparkSession, release: Release
) -> None:
    release.scale(_POOL, 2)
    _skip_unless_here(release.pods(_POOL)[0])
    short: list[str] = []
    fronts = release.restarts_of(_POOL, "front")

    def run_out_of_memory() -> None:
        pod = release.busy_pod(_POOL)
        node.run_out_of_memory(node.container_id(pod, "workers"))
        short.append(pod.metadata.name)
        until("it is not ready", lambda: not release.is_ready(_POOL, short[0]), timeout_seconds=_HEALED_SECONDS)

    assert totals_while(spark, run_out_of_memory) == {SUM}
    until(
        "they were started again",
        lambda: release.restarts_of(_POOL, "workers")[short[0]],
        timeout_seconds=_HEALED_SECONDS,
    )
    until("it is ready again", lambda: release.is_ready(_POOL, short[0]), timeout_seconds=_HEALED_SECONDS)
    assert release.restarts_of(_POOL, "front")[short[0]] == fronts[short[0]]


def test_pods_that_hang_leave_the_service_and_are_restarted(release: Release) -> None:
    """A pool's pod and a writer's pod hang at the same time, because probes are slow."""
    pods = {component: release.pods(component)[0] for component in (_POOL, _WRITER)}
    before = {component: release.restarts(component)[pod.metadata.name] for component, pod in pods.items()}

    left_out: set[str] = set()

    def ready() -> bool:
        return all(release.is_ready(component, pod.metadata.name) for component, pod in pods.items())

    def were_left_out() -> bool:
        left_out.update(each for each, pod in pods.items() if not release.is_ready(each, pod.metadata.name))
        return left_out == pods.keys()

    def were_killed() -> bool:
        return all(release.restarts(each)[pod.metadata.name] > before[each] for each, pod in pods.items())

    until("they are up", ready, timeout_seconds=_HEALED_SECONDS)
    with ExitStack() as hanging:
        for pod in pods.values():
            _skip_unless_here(pod)
            hanging.enter_context(node.stopped(pod.metadata.uid))
        until("they are left out", were_left_out, timeout_seconds=_TURNED_SECONDS)
        until("they are killed", were_killed, timeout_seconds=_HEALED_SECONDS)
    until("they are back", ready, timeout_seconds=_HEALED_SECONDS)


def _skip_unless_here(pod: Any) -> None:
    if not node.processes(pod.metadata.uid):
        pytest.skip("the pod's node is another machine: nothing here can stop its processes or take its memory")
