# SPDX-License-Identifier: Apache-2.0
"""An HPA follows what waits in a pool, up and down, as Prometheus and its adapter tell; KEDA would hear the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from tests.kube.programs import METRICS_SERVER, PROMETHEUS_ADAPTER, skip_unless_built
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

_POOL, _WRITER = "pool-default", "writer"
_FEWEST, _MOST = 1, 3
_CALLS = 8
_METRICS = 9825
_SCALED_SECONDS = 240
_BATCH = pa.record_batch({"_0": pa.array(range(10), pa.int64())})
_COMMON = {"mode": "hpa", "minReplicas": str(_FEWEST), "maxReplicas": str(_MOST)}
_VALUES = {
    "pools.default": {
        **_COMMON,
        "waiting": "1",
        "cpuPercent": "0",
        # A platform would wait longer before it takes pods away.
        "behavior.scaleDown.stabilizationWindowSeconds": "0",
    },
    "writer": _COMMON,
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


@pytest.fixture(scope="module")
def scaled(
    namespace: Namespace, release: Release, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The release under HPAs that hear of everything they ask for."""
    skip_unless_built(METRICS_SERVER, PROMETHEUS_ADAPTER)
    address = address_towards(client.Configuration.get_default_copy().host)
    rules = REPOSITORY / "docs/examples/prometheus-adapter.yaml"
    metrics, adapter = (tmp_path_factory.mktemp(name) for name in ("metrics", "adapter"))
    let_anybody_read_metrics()
    with ExitStack() as stack:
        stack.enter_context(autoscalers.metrics_server(namespace, address, metrics))
        stack.enter_context(autoscalers.prometheus_adapter(namespace, address, adapter, prometheus.address, rules))
        changes = {f"{where}.autoscaling.{key}": value for where, own in _VALUES.items() for key, value in own.items()}
        release.upgrade(**changes)
        yield
        release.rollback()


@contextmanager
def _calls_that_wait(release: Release) -> Iterator[None]:
    """Exchanges that hold all workers of one pod for the block, and more of them."""
    header = (b"authorization", f"Bearer {release.token()}".encode())
    options = flight.FlightCallOptions(timeout=2 * _SCALED_SECONDS, headers=[header])
    with flight.FlightClient(f"grpc://{release.cluster_ip(_POOL)}:8815") as caller:
        exchanges = [caller.do_exchange(flight.FlightDescriptor.for_path("echo"), options) for _ in range(_CALLS)]
        for exchange, _ in exchanges:
            exchange.begin(_BATCH.schema)
        yield
        for _, replies in exchanges:
            replies.cancel()


def test_kedas_query_gives_what_waits(prometheus: Prometheus, release: Release) -> None:
    prometheus.read(_pods(release))
    pool = {"autoscaling": {"mode": "keda", "waiting": 1, "cpuPercent": 0}}
    (trigger,) = render({"pools": {"default": pool}}).one("ScaledObject", f"{NAME}-updraft-{_POOL}")["spec"]["triggers"]
    query = trigger["metadata"]["query"].replace(f'"{EXAMPLE}"', f'"{NAMESPACE}"')
    until("Prometheus has read the pods", lambda: prometheus.samples(query) == [0], timeout_seconds=_SCALED_SECONDS)
    with _calls_that_wait(release):
        until("Prometheus has read it", lambda: prometheus.samples(query) > [0], timeout_seconds=_SCALED_SECONDS)


def test_pods_are_added_while_exchanges_wait_and_taken_away_after(
    scaled: None, release: Release, prometheus: Prometheus
) -> None:
    def scaled_to(pods: int) -> bool:
        prometheus.read(_pods(release))
        return release.wanted_pods(_POOL) == pods == release.ready_pods(_POOL)

    with _calls_that_wait(release):
        until("pods were added", lambda: scaled_to(_MOST), timeout_seconds=_SCALED_SECONDS)
    until("pods were taken away", lambda: scaled_to(_FEWEST), timeout_seconds=_SCALED_SECONDS)


def test_an_hpa_hears_of_cpu(scaled: None) -> None:
    until("the metrics server has heard of the writer", _hears_of_cpu, timeout_seconds=_SCALED_SECONDS)


def _hears_of_cpu() -> bool:
    autoscalers = client.AutoscalingV2Api()
    found = autoscalers.read_namespaced_horizontal_pod_autoscaler_status(f"{NAME}-updraft-{_WRITER}", NAMESPACE)
    read = [metric.resource for metric in found.status.current_metrics or () if metric.resource]
    return any(each.name == "cpu" and each.current.average_utilization is not None for each in read)
