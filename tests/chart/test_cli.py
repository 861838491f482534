# SPDX-License-Identifier: Apache-2.0
"""The command `updraft` understands the chart's pods: their labels, their port for metrics, their certificate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from tests.chart.chart import render
from updraft_cli.cluster import EVERY_RELEASE, Pod, pod_of


def _read(manifest: Any) -> Pod | None:
    """Return the pod as the command reads it from the API server's answer."""
    return pod_of(client.ApiClient().deserialize(json.dumps(manifest), "V1Pod", "application/json"))


def _seen(name: str, values: dict[str, Any] | None = None) -> Pod | None:
    template = render(values).one("Deployment", name)["spec"]["template"]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pod = {"metadata": {**template["metadata"], "name": name}, "spec": template["spec"], "status": status}
    return _read(pod)


def test_a_pod_of_a_pool_is_known_by_its_labels_and_ports() -> None:
    assert _seen("air-updraft-pool-default") == Pod(
        name="air-updraft-pool-default",
        release="air",
        component="pool-default",
        ready=True,
        phase="Running",
        restarts=0,
        metrics_port=9825,
        certificate_secret="",
    )


@pytest.mark.parametrize("values", [{}, {"fullnameOverride": "ours"}])
def test_pods_are_found_whatever_the_release_is_named(values: dict[str, Any]) -> None:
    for deployment in render(values).all("Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert EVERY_RELEASE in [f"{label}={value}" for label, value in labels.items()]


def test_a_sidecars_port_is_not_taken_for_the_services() -> None:
    sidecar = {"name": "beside", "image": "b", "ports": [{"name": "metrics", "containerPort": 15020}]}
    pool = _seen("air-updraft-pool-default", {"common": {"podTemplate": {"spec": {"containers": [sidecar]}}}})
    assert pool is not None
    assert pool.metrics_port == 9825


def test_the_secret_with_its_certificate_is_known() -> None:
    writer = _seen("air-updraft-writer", {"common": {"tls": {"mode": "secret", "secretName": "ours"}}})
    assert writer is not None
    assert (writer.metrics_port, writer.certificate_secret) == (9826, "ours")


def test_the_pod_of_helm_test_is_not_a_service() -> None:
    pod = render().one("Pod", "air-updraft-pool-default-test")
    assert _read({**pod, "status": {}}) is None
