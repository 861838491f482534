# SPDX-License-Identifier: Apache-2.0
"""Namespace of the tests: restricted, with storage that pods and this machine share."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from typing import Any

from kubernetes import client, config, dynamic

from tests.support.waiting import until

NAMESPACE = "updraft-e2e"
TABLES = "tables"
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_GONE_SECONDS = 120


class Namespace:
    """Namespace with its storage and Secrets, in which the release is installed."""

    def __init__(self, shared: Path) -> None:
        config.load_kube_config()
        self.core, self.apps, self.discovery = client.CoreV1Api(), client.AppsV1Api(), client.DiscoveryV1Api()
        self.batch = client.BatchV1Api()
        self._shared = shared

    def create(self) -> None:
        """Create it, with a claim named TABLES for the directory `shared`."""
        self.core.create_namespace({"metadata": {"name": NAMESPACE, "labels": _RESTRICTED}})
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": NAMESPACE}
        volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(self._shared)}}
        self.core.create_persistent_volume({"metadata": {"name": NAMESPACE}, "spec": volume})
        claim = {**common, "resources": {"requests": {"storage": "1Gi"}}}
        self.core.create_namespaced_persistent_volume_claim(NAMESPACE, {"metadata": {"name": TABLES}, "spec": claim})

    def remove(self) -> None:
        """Remove everything, and return when it is gone, so that the next run can start."""
        self.core.delete_namespace(NAMESPACE)
        self.core.delete_persistent_volume(NAMESPACE)

        def gone() -> bool:
            return all(each.metadata.name != NAMESPACE for each in self.core.list_namespace().items)

        until("the namespace is gone", gone, timeout_seconds=_GONE_SECONDS)

    def add_secret(self, name: str, files: dict[str, str]) -> None:
        """Make a Secret with these files."""
        self.core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": name}, "stringData": files})

    def secret(self, name: str) -> dict[str, str]:
        """Return the files of a Secret."""
        data = self.core.read_namespaced_secret(name, NAMESPACE).data
        return {file: b64decode(content).decode() for file, content in data.items()}

    def add_config_map(self, name: str, files: dict[str, str]) -> None:
        """Make a ConfigMap with these files."""
        self.core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}, "data": files})

    def change_config_map(self, name: str, files: dict[str, str]) -> None:
        """Replace these files of a ConfigMap; `Release.sync_volumes` updates them in pods."""
        self.core.patch_namespaced_config_map(name, NAMESPACE, {"data": files})

    def pods(self, selector: str) -> list[Any]:
        """Return the pods with a label."""
        return list(self.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items)

    def named(self, release: str) -> list[str]:
        """Return every object whose name contains the release's name, of any kind but events."""
        known = dynamic.DynamicClient(client.ApiClient())
        kinds = {
            kind.kind: kind
            for kind in known.resources.search(namespaced=True)
            if "list" in (kind.verbs or ()) and not kind.kind.endswith(("List", "Event"))
        }
        found = [(kind, each.metadata.name) for kind in kinds for each in kinds[kind].get(namespace=NAMESPACE).items]
        return [f"{kind} {name}" for kind, name in found if re.search(rf"\b{release}\b", name)]
