# SPDX-License-Identifier: Apache-2.0
"""A pool that wants a GPU goes where one is: to a node that is only said to be there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.chart.chart import render
from tests.kube.namespace import NAMESPACE, Namespace
from tests.support.waiting import until

_NODE = "updraft-simulated-gpu"
_GPU = "example.com/gpu"
_SCHEDULED_SECONDS = 30
_POOL = "air-updraft-pool-gpu"


@pytest.fixture
def gpu_node(namespace: Namespace) -> Iterator[str]:
    """A node of nobody's that says it is ready and has two GPUs; the scheduler believes it for a while."""
    resources = {"cpu": "8", "memory": "64Gi", "pods": "10", "ephemeral-storage": "100Gi", _GPU: "2"}
    now = datetime.now(UTC)
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "", "lastHeartbeatTime": now}
    namespace.core.create_node({"metadata": {"name": _NODE}})
    namespace.core.patch_node(_NODE, {"spec": {"taints": []}})
    namespace.core.patch_node_status(
        _NODE, {"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}}
    )
    yield _NODE
    namespace.core.delete_node(_NODE)


def test_a_pool_with_a_gpu_goes_to_the_node_that_has_one(namespace: Namespace, gpu_node: str) -> None:
    pools = {"default": None, "gpu": {"replicas": 1, "gpu": {"count": 1, "resource": _GPU}}}
    deployment = render({"pools": pools, "writer": {"enabled": False}}).one("Deployment", _POOL)
    pod = deployment["spec"]["template"]["spec"]
    pod.pop("serviceAccountName")
    limits = pod["containers"][0]["resources"]["limits"]
    # The API takes numbers too, its Python client does not.
    limits[_GPU] = str(limits[_GPU])
    namespace.apps.create_namespaced_deployment(NAMESPACE, deployment)
    selector = "app.kubernetes.io/component=pool-gpu"
    try:
        placed = until(
            "the pod is placed",
            lambda: [pod.spec.node_name for pod in namespace.pods(selector) if pod.spec.node_name],
            timeout_seconds=_SCHEDULED_SECONDS,
        )
        assert placed == [gpu_node]
    finally:
        namespace.apps.delete_namespaced_deployment(_POOL, NAMESPACE)
        for left in namespace.pods(selector):
            # No kubelet is there to say that it has ended.
            namespace.core.delete_namespaced_pod(left.metadata.name, NAMESPACE, grace_period_seconds=0)
