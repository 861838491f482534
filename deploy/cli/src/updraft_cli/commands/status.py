# SPDX-License-Identifier: Apache-2.0
"""`updraft status`: show pods or one endpoint, with health, load, versions and the expiry of the certificate."""

from dataclasses import asdict
from typing import Any, ClassVar

from cryptography import x509

from updraft.client.endpoint import Endpoint, Transport
from updraft.service.flight_service import FLIGHT_SERVICE_NAME
from updraft_cli.cluster import Cluster, ClusterError, Pod
from updraft_cli.doctor.connection import certificate_of, days_left
from updraft_cli.options import ClusterOptions
from updraft_cli.output import print_json, print_line, print_table
from updraft_cli.service import Status as ServiceStatus


class Status(ClusterOptions):
    """Show pools and writers: the pods of a release, or one endpoint, with health, load, versions and certificate.

    SANDBOX lists the layers of a pool's workers, and those that the kernel lacks.

    HEALTH is what the pod's own gRPC health service reports, READY what the kubelet concludes. HEALTH needs the right
    to get pods/proxy, the expiry of the certificate the right to get its Secret; the table names rights that you lack.
    """

    examples: ClassVar[str] = """examples:
  updraft status --namespace data
  updraft status --release air --output json
  updraft status --endpoint grpc://127.0.0.1:8815 --token-file token
"""

    def cli_cmd(self) -> None:
        """Print the table."""
        if self.endpoint:
            self._show_endpoint()
        else:
            self._show_cluster()

    def _show_endpoint(self) -> None:
        endpoint = Endpoint.parse(self.endpoint)
        with self.service() as service:
            status, health = service.status(), service.health()
        shown = certificate_of(endpoint, self.timeout_seconds) if endpoint.transport is Transport.TLS else None
        if self.output == "json":
            print_json({"endpoint": str(endpoint), "health": health, "certificate": _json(shown), "status": status})
            return
        told = (state_of(status), load_of(status), versions_of(status), sandbox_of(status))
        row = (str(endpoint), health, *told, _certificate(shown))
        print_table(("endpoint", "health", "state", "load", "versions", "sandbox", "certificate"), [row])

    def _show_cluster(self) -> None:
        cluster = Cluster(self.context, self.namespace, self.timeout_seconds)
        pods = cluster.pods(self.release)
        if not pods:
            whose = f"release {self.release}" if self.release else "the chart"
            raise ClusterError(f"no pods of {whose} in namespace {cluster.namespace}")
        seen = [(pod, cluster.status(pod), cluster.certificate(pod)) for pod in pods]
        if self.output == "json":
            print_json([{**asdict(pod), "status": status, "certificate": _json(cert)} for pod, status, cert in seen])
            return
        named = (
            "pod",
            "component",
            "ready",
            "restarts",
            "health",
            "state",
            "load",
            "versions",
            "sandbox",
            "certificate",
        )
        print_table(named, [_row(pod, status, cert) for pod, status, cert in seen])
        ready = sum(pod.ready for pod in pods)
        print_line()
        print_line(f"{ready} of {len(pods)} pods are ready.")


def load_of(status: ServiceStatus) -> str:
    """Describe the load of a service in a few words."""
    if "workers" in status:
        workers, waiting = status["workers"], status["queue"]["waiting"]
        total = workers["idle"] + workers["busy"] + workers["starting"]
        return f"{workers['busy']} of {total} busy, {waiting} waiting"
    quota = max(status["quota_bytes"], 1)
    return f"{status['open_files']} files, {status['held_bytes'] / quota:.0%} of quota"


def versions_of(status: ServiceStatus) -> str:
    """List the versions that a service runs, in a few words."""
    if "versions" not in status:
        return str(status["writer_version"])
    versions = status["versions"]
    parts = [versions["server"], f"Python {versions['python']}"]
    return ", ".join([*parts, f"pyspark {versions['pyspark']}"] if versions["pyspark"] else parts)


def sandbox_of(status: ServiceStatus) -> str:
    """List the layers of a pool's sandbox that are on, then those that are off."""
    layers = status.get("sandbox", {})
    on = [name for name, lack in layers.items() if not lack]
    return ", ".join([*on, *(f"no {name}" for name, lack in layers.items() if lack)]) or "-"


def state_of(status: ServiceStatus) -> str:
    """Return the state of a service, with a note if it has refused to load newer functions."""
    return f"{status['state']}, newer functions refused" if status.get("reload_fault") else str(status["state"])


def health_of(status: ServiceStatus) -> str:
    """Return the health of Flight, as the service itself reports it."""
    health = status.get("health", {})
    if not health:
        return "-"
    return "serving" if health.get(FLIGHT_SERVICE_NAME) else "not serving"


def _row(pod: Pod, status: ServiceStatus | str, certificate: x509.Certificate | str | None) -> tuple[str, ...]:
    start = (pod.name, pod.component, "yes" if pod.ready else "no", str(pod.restarts))
    if isinstance(status, str):
        return (*start, "-", pod.phase.lower(), status, "-", "-", _certificate(certificate))
    told = (health_of(status), state_of(status), load_of(status), versions_of(status), sandbox_of(status))
    return (*start, *told, _certificate(certificate))


def _certificate(certificate: x509.Certificate | str | None) -> str:
    if certificate is None:
        return "none"
    if isinstance(certificate, str):
        return certificate
    return f"{certificate.not_valid_after_utc:%Y-%m-%d} ({days_left(certificate)} days)"


def _json(certificate: x509.Certificate | str | None) -> Any:
    if certificate is None or isinstance(certificate, str):
        return certificate
    return {"not_after": certificate.not_valid_after_utc.isoformat(), "days_left": days_left(certificate)}
