# SPDX-License-Identifier: Apache-2.0
"""What autoscaling goes by on a real cluster, run on this machine: the metrics server and a metrics adapter.

`programs.py` has the programs, `aggregated.py` registers the APIs that they serve.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube.aggregated import served
from tests.kube.namespace import Namespace
from tests.kube.programs import METRICS_SERVER, PROMETHEUS_ADAPTER, free_port, running

_ANYBODY_MAY_ASK_WHAT_IS_THERE = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/apis,/apis/*"


@contextmanager
def metrics_server(namespace: Namespace, address: str, directory: Path) -> Iterator[None]:
    """CPU and memory of pods, from the kubelets."""
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
    """Metrics of pods that Prometheus has, as a file of rules says."""
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
