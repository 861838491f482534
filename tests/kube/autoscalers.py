# SPDX-License-Identifier: Apache-2.0
"""Services that autoscaling on a real cluster reads, run on this machine: the metrics server, a metrics adapter, KEDA.

`programs.py` has the programs, `definitions.py` the kinds of KEDA's objects; `aggregated.py` registers the APIs that
the programs serve.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes import client

from tests.kube.aggregated import served
from tests.kube.definitions import defined
from tests.kube.namespace import NAMESPACE, Namespace
from tests.kube.tools import (
    KEDA_ADAPTER,
    KEDA_OPERATOR,
    METRICS_SERVER,
    PROMETHEUS_ADAPTER,
    free_port,
    running,
)
from tests.support.certificates import Authority
from tests.support.waiting import until

_ANYBODY_MAY_ASK_WHAT_IS_THERE = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/apis,/apis/*"
_SCALED_OBJECTS = ("keda.sh", "v1alpha1", NAMESPACE, "scaledobjects")
_LOOPBACK = "127.0.0.1"
_LET_GO_SECONDS = 60


@contextmanager
def metrics_server(namespace: Namespace, address: str, directory: Path) -> Iterator[None]:
    """Serve CPU and memory of pods, from the kubelets."""
    port = free_port()
    arguments = [
        *_serving(port, directory),
        f"--kubeconfig={_kubeconfig()}",
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-request-timeout=5s",
        "--metric-resolution=10s",
    ]
    log = directory / "metrics-server.log"
    with (
        running(METRICS_SERVER, arguments, port=port, log=log),
        served(namespace, "metrics.k8s.io", "v1beta1", address, port),
    ):
        yield


@contextmanager
def prometheus_adapter(
    namespace: Namespace, address: str, directory: Path, prometheus: str, rules: Path
) -> Iterator[None]:
    """Serve pod metrics from Prometheus, according to a file of rules."""
    port = free_port()
    arguments = [
        *_serving(port, directory),
        f"--lister-kubeconfig={_kubeconfig()}",
        f"--prometheus-url={prometheus}",
        f"--config={rules}",
        "--metrics-relist-interval=5s",
        "--metrics-max-age=60s",
    ]
    log = directory / "prometheus-adapter.log"
    with (
        running(PROMETHEUS_ADAPTER, arguments, port=port, log=log),
        served(namespace, "custom.metrics.k8s.io", "v1beta1", address, port),
    ):
        yield


@contextmanager
def keda(namespace: Namespace, address: str, directory: Path) -> Iterator[None]:
    """Run KEDA's operator, and the adapter through which HPAs read the operator's metrics."""
    _identify(directory)
    asked, port = free_port(), free_port()
    environment = {"WATCH_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}
    operator = [
        f"--metrics-service-bind-address={_LOOPBACK}:{asked}",
        f"--cert-dir={directory}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ]
    adapter = [
        *_serving(port, directory),
        f"--lister-kubeconfig={_kubeconfig()}",
        f"--metrics-service-address={_LOOPBACK}:{asked}",
        f"--port={free_port()}",
    ]
    operator_log, adapter_log = directory / "keda-operator.log", directory / "keda-adapter.log"
    with (
        defined(KEDA_OPERATOR.documents()),
        running(KEDA_OPERATOR, operator, port=asked, log=operator_log, environment=environment),
        running(KEDA_ADAPTER, adapter, port=port, log=adapter_log, environment=environment),
        served(namespace, "external.metrics.k8s.io", "v1beta1", address, port),
    ):
        try:
            yield
        finally:
            client.CustomObjectsApi().delete_collection_namespaced_custom_object(*_SCALED_OBJECTS)
            # Only this operator can remove their finalizers.
            until("KEDA has let go of what it scaled", _nothing_is_scaled, timeout_seconds=_LET_GO_SECONDS)


def _identify(directory: Path) -> None:
    """Create the certificates with which operator and adapter authenticate each other."""
    authority = Authority(directory / "authority")
    identity = authority.identity(_LOOPBACK)
    files = {"ca.crt": authority.certificate, "tls.crt": identity.certificate, "tls.key": identity.key}
    for name, file in files.items():
        (directory / name).symlink_to(file)


def _nothing_is_scaled() -> bool:
    objects = client.CustomObjectsApi().list_namespaced_custom_object(*_SCALED_OBJECTS)["items"]
    return not objects and not client.AutoscalingV2Api().list_namespaced_horizontal_pod_autoscaler(NAMESPACE).items


def _serving(port: int, directory: Path) -> list[str]:
    return [
        f"--secure-port={port}",
        f"--cert-dir={directory}",
        f"--authentication-kubeconfig={_kubeconfig()}",
        f"--authorization-kubeconfig={_kubeconfig()}",
        "--authentication-tolerate-lookup-failure",
        _ANYBODY_MAY_ASK_WHAT_IS_THERE,
    ]


def _kubeconfig() -> str:
    return os.environ["KUBECONFIG"]
