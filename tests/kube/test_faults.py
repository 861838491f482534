# SPDX-License-Identifier: Apache-2.0
"""Pods that are killed, run out of memory or hang: the answer stays right, and the platform heals the release."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.kube import node
from tests.kube.cluster import Release
from tests.kube.jobs import SUM, total_while
from tests.support.waiting import until

_POOL, _WRITER = "pool-default", "writer"
_TURNED_SECONDS, _HEALED_SECONDS = 60, 180


def test_a_pod_that_is_killed_changes_no_row(spark: SparkSession, release: Release) -> None:
    release.scale(_POOL, 2)
    killed: list[str] = []
    assert total_while(spark, lambda: killed.append(release.kill_a_pod(_POOL))) == SUM
    assert killed[0] not in [pod.metadata.name for pod in release.pods(_POOL)]


def test_a_pod_that_runs_out_of_memory_changes_no_row(spark: SparkSession, release: Release) -> None:
    release.scale(_POOL, 2)
    pod = release.pods(_POOL)[0]
    _skip_unless_here(pod.metadata.uid)
    assert total_while(spark, lambda: node.run_out_of_memory(pod.metadata.uid)) == SUM
    until("it was started again", lambda: release.restarts(_POOL)[pod.metadata.name], timeout_seconds=_HEALED_SECONDS)


@pytest.mark.parametrize("component", [_POOL, _WRITER])
def test_a_pod_that_hangs_is_left_out_and_started_again(release: Release, component: str) -> None:
    pod = release.pods(component)[0]
    _skip_unless_here(pod.metadata.uid)
    name, before = pod.metadata.name, release.restarts(component)[pod.metadata.name]
    until("it is up", lambda: release.is_ready(component, name), timeout_seconds=_HEALED_SECONDS)
    with node.stopped(pod.metadata.uid):
        until("it is left out", lambda: not release.is_ready(component, name), timeout_seconds=_TURNED_SECONDS)
        until("it is killed", lambda: release.restarts(component)[name] > before, timeout_seconds=_HEALED_SECONDS)
    until("it is back", lambda: release.is_ready(component, name), timeout_seconds=_HEALED_SECONDS)


def _skip_unless_here(pod_uid: str) -> None:
    if not node.processes(pod_uid):
        pytest.skip("the pod's node is another machine: nothing here can stop its processes or take its memory")
