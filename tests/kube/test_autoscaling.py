# SPDX-License-Identifier: Apache-2.0
"""Autoscaling by an HPA on the number of waiting exchanges, up and down, with Prometheus' adapter or KEDA."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kubernetes import client
from pyarrow import flight

from tests.chart.chart import render
from tests.dashboards.prometheus import NAMESPACE as EXAMPLE
from tests.dashboards.prometheus import Prometheus, services_at
from tests.kube import autoscalers
from tests.kube.aggregated import let_anybody_read_metrics
from tests.kube.cluster import NAME, Release
from tests.kube.executors import address_towards
from tests.kube.namespace import NAMESPACE, Namespace
from tests.kube.tools import KEDA_ADAPTER, KEDA_OPERATOR, METRICS_SERVER, PROMETHEUS_ADAPTER, skip_unless_built
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

_POOL, _WRITER = "pool-default", "writer"
_FEWEST, _MOST = 1, 3
_CALLS = 8
_METRICS = 9825
_SCALED_SECONDS = 240
_RULES = REPOSITORY / "docs/examples/prometheus-adapter.yaml"
_BATCH = pa.record_batch({"_0": pa.array(range(10), pa.int64())})
_REPLICAS = 2
_COMMON = {"minReplicas": str(_FEWEST), "maxReplicas": str(_MOST)}
_BY_WHAT_WAITS = {
    "waiting": "1",
    "cpuPercent": "0",
    # A real platform would wait longer before it removes pods.
    "behavior.scaleDown.stabilizationWindowSeconds": "0",
}


def _pods(release: Release) -> dict[str, Any]:
    pods = {pod.metadata.name: f"{pod.status.pod_ip}:{_METRICS}" for pod in release.pods(_POOL) if pod.status.pod_ip}
    return services_at(pods, NAMESPACE)


@pytest.fixture(scope="module")
def prometheus(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not on PATH: apt-get install prometheus")
    with Prometheus(tmp_path_factory.mktemp("prometheus"), _pods(release)) as prometheus:
        yield prometheus


@contextmanager
def _hpa(namespace: Namespace, address: str, directory: Path, prometheus: str) -> Iterator[None]:
    skip_unless_built(METRICS_SERVER, PROMETHEUS_ADAPTER)
    with (
        autoscalers.metrics_server(namespace, address, directory),
        autoscalers.prometheus_adapter(namespace, address, directory, prometheus, _RULES),
    ):
        yield


@contextmanager
def _keda(namespace: Namespace, address: str, directory: Path, _prometheus: str) -> Iterator[None]:
    skip_unless_built(KEDA_OPERATOR, KEDA_ADAPTER)
    with autoscalers.keda(namespace, address, directory):
        yield


_MODES = {"hpa": _hpa, "keda": _keda}


@pytest.fixture(scope="module")
def address(namespace: Namespace) -> str:
    """Return the address at which the cluster reaches this machine to read metrics."""
    let_anybody_read_metrics()
    return address_towards(client.Configuration.get_default_copy().host)


@pytest.fixture(scope="module", params=_MODES)
def scaled(
    request: pytest.FixtureRequest,
    namespace: Namespace,
    release: Release,
    address: str,
    prometheus: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Run the release under autoscalers whose every metric is available."""
    mode = request.param
    with _MODES[mode](namespace, address, tmp_path_factory.mktemp(mode), prometheus.address):
        release.upgrade(**_values(mode, prometheus.address))
        yield
        release.rollback()
    # An HPA may have scaled the release again while it was being deleted.
    release.scale(_POOL, _REPLICAS)


def _values(mode: str, prometheus: str) -> dict[str, str]:
    common = {**_COMMON, "mode": mode, "prometheus": prometheus}
    values = {"pools.default": {**common, **_BY_WHAT_WAITS}, "writer": common}
    return {f"{of}.autoscaling.{key}": value for of, own in values.items() for key, value in own.items()}


@contextmanager
def _calls_that_wait(release: Release) -> Iterator[None]:
    """Hold all workers of one pod for the block, with further exchanges waiting."""
    header = (b"authorization", f"Bearer {release.token(_POOL)}".encode())
    options = flight.FlightCallOptions(timeout=2 * _SCALED_SECONDS, headers=[header])
    with flight.FlightClient(f"grpc://{release.cluster_ip(_POOL)}:8815") as caller:
        exchanges = [caller.do_exchange(flight.FlightDescriptor.for_path("echo"), options) for _ in range(_CALLS)]
        for exchange, _ in exchanges:
            exchange.begin(_BATCH.schema)
        yield
        for _, replies in exchanges:
            replies.cancel()


def test_kedas_query_returns_the_number_of_waiting_exchanges(prometheus: Prometheus, release: Release) -> None:
    prometheus.read(_pods(release))
    pool = {"autoscaling": {"mode": "keda", "waiting": 1, "cpuPercent": 0}}
    (trigger,) = render({"pools": {"default": pool}}).one("ScaledObject", f"{NAME}-updraft-{_POOL}")["spec"]["triggers"]
    query = trigger["metadata"]["query"].replace(f'"{EXAMPLE}"', f'"{NAMESPACE}"')
    until("Prometheus has read the pods", lambda: prometheus.samples(query) == [0], timeout_seconds=_SCALED_SECONDS)
    with _calls_that_wait(release):
        until("Prometheus has read it", lambda: prometheus.samples(query) > [0], timeout_seconds=_SCALED_SECONDS)


def test_pods_are_added_while_exchanges_wait_and_removed_afterwards(
    scaled: None, release: Release, prometheus: Prometheus
) -> None:
    def scaled_to(pods: int) -> bool:
        prometheus.read(_pods(release))
        return release.wanted_pods(_POOL) == pods == release.ready_pods(_POOL)

    with _calls_that_wait(release):
        until("pods were added", lambda: scaled_to(_MOST), timeout_seconds=_SCALED_SECONDS)
    until("pods were taken away", lambda: scaled_to(_FEWEST), timeout_seconds=_SCALED_SECONDS)


@pytest.mark.parametrize("scaled", ["hpa"], indirect=True)
def test_an_hpa_reads_cpu(scaled: None) -> None:
    until("the metrics server has heard of the writer", _hears_of_cpu, timeout_seconds=_SCALED_SECONDS)


def _hears_of_cpu() -> bool:
    autoscalers = client.AutoscalingV2Api()
    found = autoscalers.read_namespaced_horizontal_pod_autoscaler_status(f"{NAME}-updraft-{_WRITER}", NAMESPACE)
    read = [metric.resource for metric in found.status.current_metrics or () if metric.resource]
    return any(each.name == "cpu" and each.current.average_utilization is not None for each in read)
