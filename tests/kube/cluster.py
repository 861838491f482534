# SPDX-License-Identifier: Apache-2.0
"""A release of the chart in a namespace of its own, on the cluster of KUBECONFIG."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config

from tests.chart.chart import CHART
from tests.support.waiting import until

NAMESPACE = "updraft-e2e"
NAME = "air"
_HELM = Path(sys.executable).with_name("helm")
_SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
_READY_SECONDS = 180
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class Release:
    """The installed chart; `images` is the registry that the nodes pull from."""

    def __init__(self, images: str) -> None:
        config.load_kube_config()
        self._core, self._apps = client.CoreV1Api(), client.AppsV1Api()
        self._values = [
            *("--set", f"common.image.registry={images}", "--set", "common.replicas=1"),
            *(f"--set-json={kind}.resources={json.dumps(_SMALL)}" for kind in ("poolDefaults", "writer")),
            *("--set", "pools.default.workers=2", "--set", "common.drainTimeoutSeconds=60"),
        ]

    def install(self) -> Self:
        """Return when every pod is ready, under the restricted Pod Security Standard."""
        self._core.create_namespace({"metadata": {"name": NAMESPACE, "labels": _RESTRICTED}})
        self._helm("install", NAME, str(CHART), *self._values)
        return self

    def upgrade(self, **values: str) -> None:
        """Set further values and return when the new pods are ready."""
        changes = (f"--set={key}={value}" for key, value in values.items())
        self._helm("upgrade", NAME, str(CHART), *self._values, *changes)

    def rollback(self) -> None:
        """Go back to what was there before the last upgrade."""
        self._helm("rollback", NAME)

    def uninstall(self) -> list[str]:
        """What is left of the release once its pods have ended."""
        self._helm("uninstall", NAME)
        until("the pods have ended", lambda: not self.pods(""), timeout_seconds=_READY_SECONDS)
        label = f"app.kubernetes.io/instance={NAME}"
        left = [
            *self._core.list_namespaced_secret(NAMESPACE, label_selector=label).items,
            *self._core.list_namespaced_service(NAMESPACE, label_selector=label).items,
            *self._core.list_namespaced_service_account(NAMESPACE, label_selector=label).items,
            *self._apps.list_namespaced_deployment(NAMESPACE, label_selector=label).items,
        ]
        return [found.metadata.name for found in left]

    def remove_namespace(self) -> None:
        """Remove everything, without waiting for it."""
        self._core.delete_namespace(NAMESPACE)

    def address(self, component: str) -> str:
        """`host:port` of a component's Service, as this machine reaches it."""
        service = self._core.read_namespaced_service(f"{NAME}-updraft-{component}-cluster", NAMESPACE)
        return f"{service.spec.cluster_ip}:{service.spec.ports[0].port}"

    def token(self) -> str:
        """The token that the chart has made."""
        secret = self._core.read_namespaced_secret(f"{NAME}-updraft-tokens", NAMESPACE)
        return b64decode(secret.data["token"]).decode()

    def pods(self, component: str) -> list[Any]:
        """Pods of a component; of all where it is empty."""
        selector = f"app.kubernetes.io/instance={NAME}"
        selector += f",app.kubernetes.io/component={component}" if component else ""
        return list(self._core.list_namespaced_pod(NAMESPACE, label_selector=selector).items)

    def kill_a_pod(self, component: str) -> str:
        """Delete a pod without a moment to end in peace; its name."""
        name = str(self.pods(component)[0].metadata.name)
        self._core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
        return name

    def scale(self, component: str, replicas: int) -> None:
        """Return when so many pods of a component are ready."""
        name = f"{NAME}-updraft-{component}"
        self._apps.patch_namespaced_deployment_scale(name, NAMESPACE, {"spec": {"replicas": replicas}})

        def ready() -> bool:
            status = self._apps.read_namespaced_deployment(name, NAMESPACE).status
            return (status.ready_replicas or 0) == replicas == len(self.pods(component))

        until(f"{replicas} pods are ready", ready, timeout_seconds=_READY_SECONDS)

    def _helm(self, *arguments: str) -> None:
        command = [str(_HELM), *arguments, "--namespace", NAMESPACE, "--wait", "--timeout", f"{_READY_SECONDS}s"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _READY_SECONDS)
        assert ran.returncode == 0, ran.stderr
