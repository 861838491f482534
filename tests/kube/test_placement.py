# SPDX-License-Identifier: Apache-2.0
"""Pods with GPUs are scheduled to nodes with GPUs, which kwok simulates: as many pods as there are GPUs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.chart.chart import CHART
from tests.kube.cluster import TAG, helm
from tests.kube.namespace import NAMESPACE, Namespace
from tests.kube.tools import KWOK, free_port, running, skip_unless_built
from tests.support.waiting import until

_SIMULATED = "updraft-simulated"
_GPU = "example.com/gpu"
_GPUS = 2
_RELEASE = "placed"
# Excludes the Job that makes tokens, which needs no GPU.
_POD = f"app.kubernetes.io/instance={_RELEASE},app.kubernetes.io/component=pool-gpu"
_NODES = {"updraft-with-gpus": _GPUS, "updraft-without": 0}
_READY_SECONDS = 60
_TAINTS = [{"key": key, "value": _SIMULATED, "effect": "NoSchedule"} for key in ("kwok.x-k8s.io/node", _GPU)]


@pytest.fixture
def nodes(namespace: Namespace, tmp_path: Path) -> Iterator[None]:
    """Make two nodes with equal labels and taints, one of which has GPUs."""
    skip_unless_built(KWOK)
    port = free_port()
    arguments = [
        f"--kubeconfig={os.environ['KUBECONFIG']}",
        f"--manage-nodes-with-label-selector=accelerator={_SIMULATED}",
        f"--server-address=127.0.0.1:{port}",
        *(f"--config={stage}" for stage in KWOK.documents()),
    ]
    runtimes = client.NodeV1Api()
    runtimes.create_runtime_class({"metadata": {"name": _SIMULATED}, "handler": _SIMULATED})
    try:
        with running(KWOK, arguments, port=port, log=tmp_path / "kwok.log"):
            for name, gpus in _NODES.items():
                _add(namespace, name, gpus)
            yield
    finally:
        runtimes.delete_runtime_class(_SIMULATED)
        for name in _NODES:
            namespace.core.delete_node(name)


def _add(namespace: Namespace, name: str, gpus: int) -> None:
    resources = {"cpu": "64", "memory": "256Gi", "pods": "10", "ephemeral-storage": "1Ti", _GPU: str(gpus)}
    namespace.core.create_node(
        {
            "metadata": {"name": name, "labels": {"accelerator": _SIMULATED, "kubernetes.io/hostname": name}},
            "spec": {"taints": _TAINTS},
            "status": {"capacity": resources, "allocatable": resources},
        }
    )


@pytest.fixture
def pool(namespace: Namespace, nodes: None, images: str) -> Iterator[str]:
    """Return the Deployment of a pool with one GPU per pod, as in the guide."""
    pools = {
        "default": None,
        "gpu": {
            "replicas": _GPUS,
            "workers": {"resources": {"limits": {_GPU: 1}}},
            "podTemplate": {
                "spec": {
                    "runtimeClassName": _SIMULATED,
                    "nodeSelector": {"accelerator": _SIMULATED},
                    "tolerations": [{"key": taint["key"], "operator": "Exists"} for taint in _TAINTS],
                }
            },
        },
    }
    values = {
        "common.image": {"registry": images, "tag": TAG},
        "poolDefaults.workers.sessionFunctions": "unsigned",
        "pools": pools,
        "writer.enabled": False,
    }
    helm("install", _RELEASE, str(CHART), *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()))
    yield f"{_RELEASE}-updraft-pool-gpu"
    helm("uninstall", _RELEASE)


def test_pods_are_scheduled_to_gpus_and_wait_when_none_is_left(namespace: Namespace, pool: str) -> None:
    placed = namespace.pods(_POD)
    assert [pod.spec.node_name for pod in placed] == ["updraft-with-gpus"] * _GPUS
    assert {pod.spec.runtime_class_name for pod in placed} == {_SIMULATED}
    namespace.apps.patch_namespaced_deployment_scale(pool, NAMESPACE, {"spec": {"replicas": _GPUS + 1}})
    reason = until("a pod finds no GPU", lambda: _why_it_waits(namespace.pods(_POD)), timeout_seconds=_READY_SECONDS)
    assert f"Insufficient {_GPU}" in reason


def _why_it_waits(pods: list[Any]) -> str:
    conditions = [condition for pod in pods for condition in pod.status.conditions or ()]
    return next((str(each.message) for each in conditions if each.reason == "Unschedulable"), "")
