# SPDX-License-Identifier: Apache-2.0
"""A release of the chart, on the cluster of KUBECONFIG: two pools of two tenants, and a writer."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.chart.chart import CHART
from tests.kube.namespace import NAMESPACE, TABLES, Namespace
from tests.support.waiting import until

NAME = "air"
SEALED = "sealed"
_HELM = Path(sys.executable).with_name("helm")
_SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1536Mi"}}
_READY_SECONDS = 180


def helm(*arguments: str) -> None:
    """Return when what Helm was told to do is done, to the last pod."""
    command = [str(_HELM), *arguments, "--namespace", NAMESPACE, "--wait", "--timeout", f"{_READY_SECONDS}s"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _READY_SECONDS)
    assert ran.returncode == 0, ran.stderr


class Release:
    """The chart as it installs itself, but smaller, with a team's own image and a second tenant's pool.

    `images` is the registry that the nodes pull from, `tables` what the writer may write to.
    """

    def __init__(self, namespace: Namespace, images: str, tables: Path) -> None:
        self._namespace = namespace
        volume = {"name": TABLES, "persistentVolumeClaim": {"claimName": TABLES}}
        values = {
            "common.image.registry": images,
            "poolDefaults.resources": _SMALL,
            "poolDefaults.workers": 2,
            "pools.default.image.repository": "updraft-team",
            f"pools.{SEALED}.replicas": 1,
            f"pools.{SEALED}.auth.existingSecret": f"{SEALED}-tokens",
            f"pools.{SEALED}.tls": {"mode": "secret", "secretName": f"{SEALED}-tls"},
            "writer.resources": _SMALL,
            "writer.roots": [str(tables)],
            "writer.volumes": [volume],
            "writer.volumeMounts": [{"name": TABLES, "mountPath": str(tables)}],
        }
        self._values = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]

    def install(self) -> Self:
        """Return when every pod is ready."""
        helm("install", NAME, str(CHART), *self._values)
        return self

    def upgrade(self, **values: str) -> None:
        """Set further values and return when the new pods are ready."""
        changes = (f"--set={key}={value}" for key, value in values.items())
        helm("upgrade", NAME, str(CHART), *self._values, *changes)

    def rollback(self) -> None:
        """Go back to what was there before the last upgrade."""
        helm("rollback", NAME)

    def uninstall(self) -> list[str]:
        """What is left of the release, of any kind, once Kubernetes has had time to take away what depends on it."""
        helm("uninstall", NAME)
        label = f"app.kubernetes.io/instance={NAME}"
        with contextlib.suppress(TimeoutError):
            until("nothing is left", lambda: not self._namespace.labelled(label), timeout_seconds=_READY_SECONDS)
        return self._namespace.labelled(label)

    def host(self, component: str) -> str:
        """The name by which pods find a component: that of its headless Service."""
        return f"{NAME}-updraft-{component}.{NAMESPACE}"

    def cluster_ip(self, component: str) -> str:
        """Where this machine reaches a component."""
        service = self._namespace.core.read_namespaced_service(f"{NAME}-updraft-{component}-cluster", NAMESPACE)
        return str(service.spec.cluster_ip)

    def token(self) -> str:
        """The token that the chart has made."""
        secret = self._namespace.core.read_namespaced_secret(f"{NAME}-updraft-tokens", NAMESPACE)
        return b64decode(secret.data["token"]).decode()

    def pods(self, component: str) -> list[Any]:
        """Pods of a component; of all where it is empty."""
        selector = f"app.kubernetes.io/instance={NAME}"
        return self._namespace.pods(selector + (f",app.kubernetes.io/component={component}" if component else ""))

    def exchanges_by_pod(self, component: str) -> dict[str, float]:
        """How many exchanges each pod has finished, from its own metrics."""
        return {pod.metadata.name: _exchanges(f"{pod.status.pod_ip}:9825") for pod in self.pods(component)}

    def kill_a_pod(self, component: str) -> str:
        """Delete a pod without a moment to end in peace; its name."""
        name = str(self.pods(component)[0].metadata.name)
        self._namespace.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
        return name

    def restarts(self, component: str) -> dict[str, int]:
        """How often the container of each of a component's pods was started again."""
        return {
            pod.metadata.name: status.restart_count
            for pod in self.pods(component)
            for status in pod.status.container_statuses or ()
        }

    def wanted_pods(self, component: str) -> int:
        """How many pods a component's Deployment is to have."""
        deployment = self._namespace.apps.read_namespaced_deployment(f"{NAME}-updraft-{component}", NAMESPACE)
        return int(deployment.spec.replicas)

    def ready_pods(self, component: str) -> int:
        """How many of a component's pods are ready; those that end count as neither."""
        deployment = self._namespace.apps.read_namespaced_deployment(f"{NAME}-updraft-{component}", NAMESPACE)
        return int(deployment.status.ready_replicas or 0)

    def is_ready(self, component: str, pod_name: str) -> bool:
        """Whether a pod is found behind the Service."""
        service = f"kubernetes.io/service-name={NAME}-updraft-{component}"
        slices = self._namespace.discovery.list_namespaced_endpoint_slice(NAMESPACE, label_selector=service).items
        endpoints = [endpoint for part in slices for endpoint in part.endpoints or ()]
        return any(each.conditions.ready and each.target_ref.name == pod_name for each in endpoints)

    def scale(self, component: str, replicas: int) -> None:
        """Return when so many pods of a component are ready, and no other is left."""
        name = f"{NAME}-updraft-{component}"
        self._namespace.apps.patch_namespaced_deployment_scale(name, NAMESPACE, {"spec": {"replicas": replicas}})

        def ready() -> bool:
            status = self._namespace.apps.read_namespaced_deployment(name, NAMESPACE).status
            return (status.ready_replicas or 0) == replicas == len(self.pods(component))

        until(f"{replicas} pods are ready", ready, timeout_seconds=_READY_SECONDS)


def _exchanges(metrics_address: str) -> float:
    with urlopen(f"http://{metrics_address}/metrics", timeout=10) as page:
        families = text_string_to_metric_families(page.read().decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == _FINISHED)


_FINISHED = "updraft_exchanges_total"
