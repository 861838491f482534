# SPDX-License-Identifier: Apache-2.0
"""Guide docs/guides/sidecar.md: executors with a pool next to them, from the template that the chart makes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.kube.cluster import NAME, Release
from tests.kube.executors import confs_of_sidecars
from tests.kube.namespace import NAMESPACE, Namespace

_EXECUTORS = 2
_ROWS = 1_000


@pytest.fixture(scope="module")
def outcome(release: Release, namespace: Namespace, images: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the job's output."""
    told = namespace.core.read_namespaced_config_map(f"{NAME}-updraft-pool-default-sidecar", NAMESPACE)
    directory = tmp_path_factory.mktemp("sidecar")
    (directory / "executor.yaml").write_text(told.data["executor.yaml"])
    confs = confs_of_sidecars(release, images, directory / "executor.yaml", executors=_EXECUTORS)
    command = [sys.executable, "-m", "tests.kube.sidecar_job", json.dumps(confs)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_functions_run_in_the_executors_pods_as_a_user_of_their_own(outcome: Any) -> None:
    assert "FlightEvalPython" in outcome["plan"]
    hosts = {host for host, *_ in outcome["places"]}
    assert 1 <= len(hosts) <= _EXECUTORS
    assert all("-exec-" in host for host in hosts)
    assert {user for _, user, *_ in outcome["places"]} == {10002}


def test_functions_see_neither_the_socket_nor_a_token(outcome: Any) -> None:
    assert {(token, socket) for *_, token, socket in outcome["places"]} == {(False, False)}


def test_a_crash_ends_a_worker_and_no_executor(outcome: Any) -> None:
    assert "killed by SIGABRT" in outcome["crash"]
    assert outcome["total"] == _ROWS * (_ROWS - 1) // 2 * 3
    assert "ExecutorLostFailure" not in outcome["crash"]


def test_the_pods_end_with_the_job(outcome: Any, namespace: Namespace) -> None:
    selector = "spark-role=executor,spark-app-name=sidecar"
    left = namespace.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
    assert [pod.metadata.name for pod in left if pod.metadata.deletion_timestamp is None] == []
