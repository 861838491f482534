# SPDX-License-Identifier: Apache-2.0
"""Scaling, disruption and monitoring."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import ChartError, notes, render

_POOL = "air-updraft-pool-default"


def _pool(**values: Any) -> dict[str, Any]:
    return {"pools": {"default": values}}


def test_an_hpa_scales_on_cpu_and_waiting_exchanges() -> None:
    release = render(_pool(autoscaling={"mode": "hpa", "minReplicas": 3, "maxReplicas": 9, "waiting": 2}))
    spec = release.one("HorizontalPodAutoscaler", _POOL)["spec"]
    cpu, waiting = spec["metrics"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 9)
    assert cpu["resource"]["target"]["averageUtilization"] == 70
    assert waiting["pods"]["metric"]["name"] == "updraft_exchanges_waiting"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, {"replicas": 2}),
        ({"replicas": 5}, {"replicas": 5}),
        ({"replicas": None}, {}),
        # Helm would reset the number of replicas with each upgrade.
        ({"replicas": 5, "autoscaling": {"mode": "hpa"}}, {}),
        ({"autoscaling": {"mode": "keda"}}, {}),
    ],
    ids=["the default", "a number", "somebody else's", "an HPA's", "KEDA's"],
)
def test_the_number_of_pods_is_said_where_nobody_else_decides_it(values: dict[str, Any], said: dict[str, int]) -> None:
    spec = render(_pool(**values)).one("Deployment", _POOL)["spec"]
    assert {"replicas": spec["replicas"]} == said if said else "replicas" not in spec


def test_keda_scales_on_the_same() -> None:
    release = render(_pool(autoscaling={"mode": "keda", "waiting": 2, "prometheus": "http://prometheus:9090"}))
    spec = release.one("ScaledObject", _POOL)["spec"]
    assert [trigger["type"] for trigger in spec["triggers"]] == ["cpu", "prometheus"]
    assert 'updraft_exchanges_waiting{namespace="data"' in spec["triggers"][1]["metadata"]["query"]
    assert release.all("HorizontalPodAutoscaler") == []


def test_one_pod_at_a_time_may_be_unavailable() -> None:
    assert render().one("PodDisruptionBudget", _POOL)["spec"]["maxUnavailable"] == 1
    assert render({"common": {"podDisruptionBudget": {"maxUnavailable": None}}}).all("PodDisruptionBudget") == []


def test_an_upgrade_starts_a_new_pod_before_it_ends_an_old_one() -> None:
    strategy = render().one("Deployment", _POOL)["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("monitored", [False, True])
def test_the_operator_scrapes_what_is_switched_on(monitored: bool) -> None:
    values = {"monitoring": {"podMonitors": monitored, "labels": {"release": "prometheus"}}}
    monitors = render(values).all("PodMonitor")
    assert len(monitors) == (2 if monitored else 0)
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "15s"}]


@pytest.mark.parametrize("endpoint", ["", "http://collector:4317"])
def test_one_value_traces_every_pool_and_the_writer_and_tells_spark(endpoint: str) -> None:
    values = {"tracing": {"endpoint": endpoint}, "pools": {"default": {}, "big": {}}}
    release = render(values)
    for deployment in release.all("Deployment"):
        environment = release.environment(deployment["metadata"]["name"])
        assert environment.get("UPDRAFT_TRACE_ENDPOINT", "") == endpoint
    assert ("spark.updraft.trace.endpoint" in notes(values)) is bool(endpoint)


def test_a_trace_endpoint_without_a_scheme_is_refused() -> None:
    with pytest.raises(ChartError, match="endpoint"):
        render({"tracing": {"endpoint": "collector:4317"}})
