# SPDX-License-Identifier: Apache-2.0
"""Release of the chart on the cluster of KUBECONFIG: two tenants' pools, one that two others share, and a writer.

One pool and the writer use TLS.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.chart.chart import CHART, job_template
from tests.kube.namespace import NAMESPACE, TABLES, Namespace
from tests.support.paths import VERSION
from tests.support.waiting import until

NAME = "air"
SEALED, SHARED = "sealed", "shared"
TAG = VERSION + os.environ.get("UPDRAFT_SUFFIX", "")
"""Tag of all images, as `make push-images` gives it with SUFFIX."""
SIGNERS = f"{SHARED}-signers"
"""ConfigMap of the drivers whose signatures the shared pool accepts."""
_HELM = Path(sys.executable).with_name("helm")
_SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1536Mi"}}
# A rolling upgrade adds one pod to each component, and the cluster may have only two cores.
_TINY = {"requests": {"cpu": "25m", "memory": "256Mi"}}
_READY_SECONDS = 180
_METRICS_PORT = 9825
_FINISHED, _RUNNING = "updraft_exchanges_total", "updraft_exchanges_running"


def helm(*arguments: str) -> None:
    """Run Helm and return when every pod is ready."""
    _helm(*arguments, "--wait", "--timeout", f"{_READY_SECONDS}s")


def _helm(*arguments: str) -> str:
    command = [str(_HELM), *arguments, "--namespace", NAMESPACE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * _READY_SECONDS)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


class Release:
    """Chart with its defaults, but smaller, with a team's own image, a second tenant's pool and a shared one.

    `images` is the registry that the nodes pull from, `tables` the directory that the writer may write to. `mounts` is
    the directory with the tokens and certificates of jobs, instead of /etc/updraft: the driver is outside the cluster,
    and plans with the same files as executors.
    """

    def __init__(self, namespace: Namespace, images: str, tables: Path, mounts: Path) -> None:
        self._namespace = namespace
        self.mounts = mounts
        volume = {"name": TABLES, "persistentVolumeClaim": {"claimName": TABLES}}
        values = {
            "common.image": {"registry": images, "tag": TAG},
            "poolDefaults.front.resources": _SMALL,
            "poolDefaults.workers.resources": _SMALL,
            "poolDefaults.workers.count": 2,
            "poolDefaults.workers.sessionFunctions": "unsigned",
            "pools.default.workers.image.repository": "updraft-team",
            "pools.default.executorSidecar": True,
            f"pools.{SEALED}.replicas": 1,
            # As on platforms that give all containers of a pod the same user.
            f"pools.{SEALED}.workers.user": 10001,
            f"pools.{SEALED}.front.auth.existingSecret": f"{SEALED}-tokens",
            f"pools.{SEALED}.front.tls": {"mode": "secret", "secretName": f"pool-{SEALED}-tls"},
            f"pools.{SHARED}.replicas": 1,
            f"pools.{SHARED}.front.resources": _TINY,
            f"pools.{SHARED}.front.auth": {"existingSecret": f"{SHARED}-tokens", "plainTokens": False},
            f"pools.{SHARED}.front.settings": {
                "identitiesFile": "/etc/updraft/tokens/identities.toml",
                "metricsTokenFile": "/etc/updraft/tokens/observers",
            },
            f"pools.{SHARED}.front.signers": SIGNERS,
            f"pools.{SHARED}.workers.resources": _TINY,
            f"pools.{SHARED}.workers.sessionFunctions": "signed",
            "writer.tls": {"mode": "secret", "secretName": "writer-tls"},
            "writer.resources": _SMALL,
            "writer.roots": [str(tables)],
            "writer.podTemplate.spec.volumes": [volume],
            "writer.container.volumeMounts": [{"name": TABLES, "mountPath": str(tables)}],
        }
        self._values = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]

    def install(self) -> Self:
        """Install the release and return when every pod is ready."""
        helm("install", NAME, str(CHART), *self._values)
        return self

    def upgrade(self, **values: str) -> None:
        """Set further values and return when the new pods are ready."""
        changes = (f"--set={key}={value}" for key, value in values.items())
        helm("upgrade", NAME, str(CHART), *self._values, *changes)

    def upgrade_as_the_guide_says(self, **values: str) -> None:
        """Set further values on top of those that the release has, and return when the new pods are ready."""
        changes = (f"--set={key}={value}" for key, value in values.items())
        helm("upgrade", NAME, str(CHART), "--reset-then-reuse-values", *changes)

    def upgrade_with_file(self, values: Path) -> str:
        """Upgrade with the values of a file, and return Helm's output."""
        options = ("--reset-then-reuse-values", "--values", str(values), "--wait", "--timeout", f"{_READY_SECONDS}s")
        return _helm("upgrade", NAME, str(CHART), *options)

    def rollback(self) -> None:
        """Undo the last upgrade."""
        helm("rollback", NAME)

    def uninstall(self) -> list[str]:
        """Uninstall the release, and return its objects that are left once Kubernetes could remove dependents."""
        helm("uninstall", NAME)
        with contextlib.suppress(TimeoutError):
            until("nothing is left", lambda: not self._namespace.named(NAME), timeout_seconds=_READY_SECONDS)
        return self._namespace.named(NAME)

    def confs(self, component: str) -> dict[str, str]:
        """Return the confs that the release's notes print for a component, or for all of them if it is empty."""
        common, *sections = re.split(r"^([a-z0-9-]+):$", self._notes(), flags=re.MULTILINE)
        parts = {"": common, **dict(zip(sections[::2], sections[1::2], strict=True))}
        return dict(re.findall(r"^  (spark\.\S+) +(\S+)$", parts[component], flags=re.MULTILINE))

    def job_template(self, *components: str) -> dict[str, Any]:
        """Return the pod template that the notes print for jobs, with only these components' tokens."""
        template = job_template(self._notes())
        spec = template["spec"]
        for mounts in (spec["volumes"], spec["containers"][0]["volumeMounts"]):
            mounts[:] = [mount for mount in mounts if mount["name"] in components]
        return template

    def _notes(self) -> str:
        return _helm("get", "notes", NAME).replace("/etc/updraft/", f"{self.mounts}/")

    def host(self, component: str) -> str:
        """Return the name by which pods find a component, that of its headless Service."""
        return f"{NAME}-updraft-{component}.{NAMESPACE}"

    def cluster_ip(self, component: str) -> str:
        """Return the address at which this machine reaches a component."""
        service = self._namespace.core.read_namespaced_service(f"{NAME}-updraft-{component}-cluster", NAMESPACE)
        return str(service.spec.cluster_ip)

    def token(self, component: str) -> str:
        """Return the token that was made in the cluster for a component."""
        return self._namespace.secret(f"{NAME}-updraft-{component}-token")["token"]

    def has_secret(self, component: str) -> bool:
        """Return whether a component has a Secret that was made in the cluster."""
        secrets = self._namespace.core.list_namespaced_secret(NAMESPACE).items
        return f"{NAME}-updraft-{component}-token" in [secret.metadata.name for secret in secrets]

    def tokens_are_made(self) -> bool:
        """Return whether the Job that makes tokens exists and has succeeded."""
        return [job.status.succeeded for job in self._token_jobs()] == [1]

    def delete_token_jobs(self) -> None:
        """Delete the Jobs that have made tokens, but not the tokens."""
        for job in self._token_jobs():
            self._namespace.batch.delete_namespaced_job(job.metadata.name, NAMESPACE, propagation_policy="Background")
        until("no such Job is left", lambda: not self._token_jobs(), timeout_seconds=_READY_SECONDS)

    def _token_jobs(self) -> list[Any]:
        selector = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=tokens"
        return list(self._namespace.batch.list_namespaced_job(NAMESPACE, label_selector=selector).items)

    def pods(self, component: str) -> list[Any]:
        """Return the pods of a component, or of all of them if it is empty."""
        selector = f"app.kubernetes.io/instance={NAME}"
        return self._namespace.pods(selector + (f",app.kubernetes.io/component={component}" if component else ""))

    def sync_volumes(self, component: str) -> None:
        """Update Secrets and ConfigMaps in pods now: the kubelet looks once a minute, and when a pod changes."""
        change = {"metadata": {"annotations": {"updraft.tests/synced": str(time.monotonic_ns())}}}
        for pod in self.pods(component):
            if not pod.metadata.deletion_timestamp:
                self._namespace.core.patch_namespaced_pod(pod.metadata.name, NAMESPACE, change)

    def exchanges_by_pod(self, component: str) -> dict[str, float]:
        """Return how many exchanges each pod has finished, from its own metrics."""
        return {pod.metadata.name: _metric(pod, _FINISHED) for pod in self.pods(component)}

    def running(self, component: str) -> int:
        """Return how many exchanges are running in a component's pods."""
        return int(sum(_metric(pod, _RUNNING) for pod in self.pods(component)))

    def log(self, component: str, container: str, *, pod: str = "", since_seconds: int | None = None) -> str:
        """Return a container's log in a component's pods, or in one of them."""
        names = [pod] if pod else [each.metadata.name for each in self.pods(component)]
        limit = {} if since_seconds is None else {"since_seconds": since_seconds}
        read = self._namespace.core.read_namespaced_pod_log
        return "".join(read(name, NAMESPACE, container=container, **limit) for name in names)

    def busy_pod(self, component: str) -> Any:
        """Wait for a pod with a running exchange and return it."""

        def found() -> Any:
            return next((pod for pod in self.pods(component) if _metric(pod, _RUNNING)), None)

        return until("a pod works", found, timeout_seconds=_READY_SECONDS)

    def kill_a_busy_pod(self, component: str) -> str:
        """Delete a busy pod without a grace period, and return its name once it no longer answers."""
        pod = self.busy_pod(component)
        self._namespace.core.delete_namespaced_pod(pod.metadata.name, NAMESPACE, grace_period_seconds=0)
        until("it is dead", lambda: not _answers(pod), timeout_seconds=_READY_SECONDS)
        return str(pod.metadata.name)

    def restarts(self, component: str) -> dict[str, int]:
        """Return the restarts of all containers in each of a component's pods, except terminating ones."""
        return {
            pod.metadata.name: sum(status.restart_count for status in pod.status.container_statuses or ())
            for pod in self.pods(component)
            if not pod.metadata.deletion_timestamp
        }

    def restarts_of(self, component: str, container: str) -> dict[str, int]:
        """Return the restarts of one container in each of a component's pods."""
        return {
            pod.metadata.name: status.restart_count
            for pod in self.pods(component)
            for status in pod.status.container_statuses or ()
            if status.name == container
        }

    def wanted_pods(self, component: str) -> int:
        """Return the number of pods that a component's Deployment asks for."""
        deployment = self._namespace.apps.read_namespaced_deployment(f"{NAME}-updraft-{component}", NAMESPACE)
        return int(deployment.spec.replicas)

    def ready_pods(self, component: str) -> int:
        """Return how many of a component's pods are ready, without terminating ones."""
        deployment = self._namespace.apps.read_namespaced_deployment(f"{NAME}-updraft-{component}", NAMESPACE)
        return int(deployment.status.ready_replicas or 0)

    def is_ready(self, component: str, pod_name: str) -> bool:
        """Return whether the Service has the pod as a ready endpoint."""
        service = f"kubernetes.io/service-name={NAME}-updraft-{component}"
        slices = self._namespace.discovery.list_namespaced_endpoint_slice(NAMESPACE, label_selector=service).items
        endpoints = [endpoint for part in slices for endpoint in part.endpoints or ()]
        return any(each.conditions.ready and each.target_ref.name == pod_name for each in endpoints)

    def scale(self, component: str, replicas: int) -> None:
        """Scale a component, and return when exactly this many pods are left and ready."""
        name = f"{NAME}-updraft-{component}"
        self._namespace.apps.patch_namespaced_deployment_scale(name, NAMESPACE, {"spec": {"replicas": replicas}})

        def ready() -> bool:
            status = self._namespace.apps.read_namespaced_deployment(name, NAMESPACE).status
            return (status.ready_replicas or 0) == replicas == len(self.pods(component))

        until(f"{replicas} pods are ready", ready, timeout_seconds=_READY_SECONDS)


def _metric(pod: Any, name: str) -> float:
    with urlopen(f"http://{pod.status.pod_ip}:{_METRICS_PORT}/metrics", timeout=60) as page:
        families = text_string_to_metric_families(page.read().decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def _answers(pod: Any) -> bool:
    try:
        _metric(pod, _RUNNING)
    except OSError:
        return False
    return True
