# SPDX-License-Identifier: Apache-2.0
"""Pools and writers in a Kubernetes cluster: pods, their state and certificates, eviction, and Secrets.

Only the API server has to be reachable: it proxies `/status.json` of a pod, for users with the right to get
`pods/proxy`. If the user lacks a right, the output names the right instead of the value.
"""

import base64
import contextlib
import copy
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from updraft_cli.service import Status

EVERY_RELEASE = "app.kubernetes.io/part-of=updraft"
"""Selector for the pods of the chart in every release."""
_RELEASE, _COMPONENT = "instance", "component"
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POLL_SECONDS = 1.0
_ENDED = ("Failed", "Succeeded")


class ClusterError(Exception):
    """Raised when the cluster is unreachable or refuses a request; the message says what to do."""


class MissingError(ClusterError):
    """Raised when the cluster has no object of that name."""


class ExistsError(ClusterError):
    """Raised when the cluster already has an object of that name."""


@dataclass(frozen=True, slots=True)
class Pod:
    """Pod of a pool or of the writer."""

    name: str
    release: str
    component: str
    ready: bool
    phase: str
    restarts: int
    metrics_port: int
    certificate_secret: str
    """Secret with its TLS certificate; empty if it has no certificate."""


_MEANINGS = {HTTPStatus.NOT_FOUND: MissingError, HTTPStatus.CONFLICT: ExistsError}


class Cluster:
    """Namespace of a cluster, accessed through Kubernetes' own client."""

    def __init__(self, context: str, namespace: str, timeout_seconds: float) -> None:
        try:
            from kubernetes import client, config
        except ImportError:
            raise ClusterError(
                "this needs the Kubernetes client: `pip install kubernetes`, or name a service with --endpoint"
            ) from None
        try:
            own_namespace = _load(config, context)
        except config.ConfigException as error:
            raise ClusterError(
                f"found no Kubernetes configuration: {error}; name a service with --endpoint instead"
            ) from None
        self.namespace = namespace or own_namespace
        self._core = client.CoreV1Api()
        self._failure = client.ApiException
        self._timeout_seconds = timeout_seconds

    def within(self, namespace: str) -> Self:
        """Return another namespace of the same cluster."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    def pods(self, release: str) -> list[Pod]:
        """Return the pods of a release, or of every release, that have not ended; raises ClusterError."""
        selector = f"app.kubernetes.io/{_RELEASE}={release}" if release else EVERY_RELEASE
        found = self._asked(
            "list pods", self._core.list_namespaced_pod, namespace=self.namespace, label_selector=selector
        )
        # Leave out pods that have ended: an evicted pod stays in the list until it is deleted.
        running = (pod for pod in found.items if pod.status.phase not in _ENDED)
        pods = [pod for pod in map(pod_of, running) if pod is not None]
        return sorted(pods, key=lambda pod: (pod.release, pod.component, pod.name))

    def status(self, pod: Pod) -> Status | str:
        """Return the state that a pod reports, or the reason why it cannot be read."""
        try:
            answer = self._core.connect_get_namespaced_pod_proxy_with_path(
                f"{pod.name}:{pod.metrics_port}",
                self.namespace,
                "status.json",
                # By default the client parses the JSON and returns the text of a Python dictionary.
                _preload_content=False,
                _request_timeout=self._timeout_seconds,
            )
            return dict(json.loads(answer.data))
        except self._failure as error:
            return "may not get pods/proxy" if error.status == 403 else f"does not answer ({error.status})"
        except Exception as error:
            # The client's HTTP library raises its own errors if the API server is silent or gone.
            return f"does not answer ({type(error).__name__})"

    def certificate(self, pod: Pod) -> x509.Certificate | str | None:
        """Return the certificate in a pod's Secret, or the reason why it cannot be read; None for a pod without one."""
        secret = pod.certificate_secret
        if not secret:
            return None
        try:
            found = self._core.read_namespaced_secret(secret, self.namespace, _request_timeout=self._timeout_seconds)
            return x509.load_pem_x509_certificate(base64.b64decode(found.data["tls.crt"]))
        except self._failure as error:
            return f"may not read Secret {secret}" if error.status == 403 else f"no Secret {secret}"
        except (KeyError, TypeError, ValueError):
            return f"no certificate in Secret {secret}"
        except Exception as error:
            return f"the API server does not answer ({type(error).__name__})"

    def evict(self, name: str) -> None:
        """Evict a pod, as draining its node would, within its disruption budget; raises ClusterError."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.namespace}}
        self._asked(f"evict {name}", self._core.create_namespaced_pod_eviction, name, self.namespace, body)

    def service_account(self, name: str) -> Any:
        """Return a service account by its name; raises ClusterError."""
        return self._asked(f"find {name}", self._core.read_namespaced_service_account, name, self.namespace)

    def add_secret(self, name: str, files: Mapping[str, str], owner: Any = None) -> bool:
        """Create a Secret with these files unless it exists; return whether it was created.

        The Secret gets the labels of its owner, and Kubernetes deletes it with its owner. Raises ClusterError, also if
        the Secret exists but lacks one of the files or belongs to another owner. A Secret of another owner is unusable:
        its creator knows the token, and Kubernetes is about to delete the Secret if that owner no longer exists.
        """
        found = self._make_secret(name, files, owner)
        lacking = sorted(set(files) - set(found.data or ())) if found else ()
        if lacking:
            keys = " and ".join(lacking)
            raise ClusterError(f"Secret {name} exists but lacks the key {keys}: add the key, or delete the Secret")
        return found is None

    def copy_secret(self, name: str, key: str, source: Self, owner: Any = None) -> bool:
        """Copy one key of the Secret `name` from the namespace of `source` to this one, creating the Secret if missing.

        Returns whether the Secret was created or changed; raises ClusterError, as `add_secret` does.
        """
        original = source._asked(
            f"read Secret {name}", source._core.read_namespaced_secret, name, source.namespace
        ).data[key]
        found = self._make_secret(name, {key: base64.b64decode(original).decode()}, owner)
        if found is not None and (found.data or {}).get(key) == original:
            return False
        if found is not None:
            changed = {"data": {key: original}}
            self._asked(f"change Secret {name}", self._core.patch_namespaced_secret, name, self.namespace, changed)
        return True

    def _make_secret(self, name: str, files: Mapping[str, str], owner: Any) -> Any:
        """Create a Secret and return None, or return the existing Secret if it is this owner's."""
        metadata: dict[str, Any] = {"name": name}
        if owner is not None:
            reference = {"apiVersion": "v1", "kind": "ServiceAccount"}
            reference |= {"name": owner.metadata.name, "uid": owner.metadata.uid}
            metadata |= {"labels": owner.metadata.labels, "ownerReferences": [reference]}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": dict(files)}
        with contextlib.suppress(ExistsError):
            self._asked(f"make Secret {name}", self._core.create_namespaced_secret, self.namespace, body)
            return None
        found = self._asked(f"read Secret {name}", self._core.read_namespaced_secret, name, self.namespace)
        if owner is not None and all(
            reference.uid != owner.metadata.uid for reference in found.metadata.owner_references or ()
        ):
            raise ClusterError(
                f"Secret {name} was not created for {owner.metadata.name}, and its creator knows the token: delete it, "
                "or name it as existingSecret if it is yours"
            )
        return found

    def pod(self, name: str) -> Pod:
        """Return a pod by its name; raises ClusterError."""
        pod = pod_of(self._asked(f"find {name}", self._core.read_namespaced_pod, name, self.namespace))
        if pod is None:
            raise ClusterError(f"{name} is not a pod of a pool or a writer")
        return pod

    def watch_end(self, name: str, within_seconds: float) -> Iterator[Status | str]:
        """Yield the state of a pod every second until it has ended; raises ClusterError if it does not end in time.

        An API server that does not answer for a while does not end the watch.
        """
        deadline = time.monotonic() + within_seconds
        while time.monotonic() < deadline:
            try:
                yield self.status(self.pod(name))
            except MissingError:
                return
            except ClusterError as error:
                yield str(error)
            # Poll, because the Kubernetes client's own watch would end with the connection.
            time.sleep(_POLL_SECONDS)
        raise ClusterError(f"{name} has not ended within {within_seconds:g} seconds: it is still finishing its work")

    def _asked(self, what: str, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named, _request_timeout=self._timeout_seconds)
        except self._failure as error:
            kind = _MEANINGS.get(error.status, ClusterError)
            raise kind(f"cannot {what} in namespace {self.namespace}: {_reason(error)}") from None
        except Exception as error:
            raise ClusterError(f"the API server does not answer: {type(error).__name__}") from None


def _load(config: Any, context: str) -> str:
    """Load the kubeconfig or this pod's service account; return its namespace."""
    try:
        config.load_kube_config(context=context or None)
        contexts, current = config.list_kube_config_contexts()
        chosen = next((known for known in contexts if known["name"] == context), current)
        return str(chosen["context"].get("namespace") or "default")
    except config.ConfigException:
        if context:
            raise
        config.load_incluster_config()
        return _OWN_NAMESPACE.read_text().strip()


def pod_of(found: Any) -> Pod | None:
    """Return the pod, or None if it belongs to neither a pool nor a writer."""
    labels = {name.rpartition("/")[2]: value for name, value in (found.metadata.labels or {}).items()}
    # Reversed, so that our containers take precedence over later sidecars, which may have a port of the same name.
    ports = {port.name: port.container_port for box in reversed(found.spec.containers) for port in box.ports or ()}
    if _COMPONENT not in labels or "metrics" not in ports:
        return None
    conditions = {condition.type: condition.status for condition in found.status.conditions or ()}
    secrets = {volume.name: volume.secret.secret_name for volume in found.spec.volumes or () if volume.secret}
    return Pod(
        name=found.metadata.name,
        release=labels.get(_RELEASE, ""),
        component=labels[_COMPONENT],
        ready=conditions.get("Ready") == "True",
        phase="Terminating" if found.metadata.deletion_timestamp else found.status.phase,
        restarts=sum(status.restart_count for status in found.status.container_statuses or ()),
        metrics_port=ports["metrics"],
        certificate_secret=secrets.get("tls", ""),
    )


def _reason(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
