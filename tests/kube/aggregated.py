# SPDX-License-Identifier: Apache-2.0
"""Metrics APIs on this machine that the cluster's API server passes on (API aggregation)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client

from tests.kube.namespace import NAMESPACE, Namespace
from tests.support.waiting import until

_AVAILABLE_SECONDS = 60
_GROUPS = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"]
_READERS = "metrics-readers"


@contextmanager
def served(namespace: Namespace, group: str, version: str, address: str, port: int) -> Iterator[None]:
    """Register an API group that `address` serves until the block ends."""
    name = group.replace(".", "-")
    service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 443, "targetPort": port}]}}
    # No selector, because the endpoints below name this machine instead of a pod.
    endpoints = {
        "metadata": {"name": name},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}],
    }
    spec = {
        "group": group,
        "version": version,
        "service": {"name": name, "namespace": NAMESPACE},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    registrations = client.ApiregistrationV1Api()
    registered = f"{version}.{group}"
    namespace.core.create_namespaced_service(NAMESPACE, service)
    namespace.core.create_namespaced_endpoints(NAMESPACE, endpoints)
    registrations.create_api_service({"metadata": {"name": registered}, "spec": spec})

    def available() -> bool:
        conditions = registrations.read_api_service_status(registered).status.conditions or ()
        return any(each.type == "Available" and each.status == "True" for each in conditions)

    try:
        until(f"{registered} is available", available, timeout_seconds=_AVAILABLE_SECONDS)
        yield
    finally:
        registrations.delete_api_service(registered)
        namespace.core.delete_namespaced_service(name, NAMESPACE)


def let_anybody_read_metrics() -> None:
    """Allow anyone to read this namespace's metrics: without certificates the API server cannot identify callers."""
    rights = client.RbacAuthorizationV1Api()
    rules = [{"apiGroups": _GROUPS, "resources": ["*"], "verbs": ["get", "list"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": _READERS}
    anybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}
    rights.create_namespaced_role(NAMESPACE, {"metadata": {"name": _READERS}, "rules": rules})
    rights.create_namespaced_role_binding(
        NAMESPACE, {"metadata": {"name": _READERS}, "roleRef": role, "subjects": [anybody]}
    )
