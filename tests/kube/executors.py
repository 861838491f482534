# SPDX-License-Identifier: Apache-2.0
"""Spark whose driver runs here and whose two executors, with two tasks each, are pods without Python.

It reaches pools and writer as the notes of the release say.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from pyspark.sql import SparkSession

from tests.kube.cluster import SEALED, SHARED, TAG, Release
from tests.kube.namespace import NAMESPACE, TABLES, Namespace
from tests.kube.tenants import TENANTS
from tests.support.paths import connector_jar
from tests.support.spark import local_spark

AUTHORITY = "authority"
"""Secret with the CA certificate of the release, as its notes want it mounted."""
ABSENT = "absent"
"""Secret that does not exist, which executors mount as the notes say."""
EXECUTOR = f"updraft-executor:{TAG}"
"""Image of executors whose Python workers run on a pool."""
_POD_CONTEXT = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_EXECUTORS = "spark.kubernetes.executor."


@contextmanager
def spark_on_kubernetes(
    release: Release, namespace: Namespace, images: str, tables: Path, directory: Path
) -> Iterator[SparkSession]:
    """Start a session in which a task may not fail even once."""
    session = local_spark("kube", connector=True, conf=_confs(release, namespace, images, tables, directory))
    try:
        yield session
    finally:
        session.stop()


def confs_of_workers(
    release: Release, namespace: Namespace, images: str, tables: Path, directory: Path
) -> dict[str, str]:
    """Return the confs of a session whose Python workers run on the default pool. The image has the connector's jar."""
    return {
        **_confs(release, namespace, images, tables, directory),
        **release.confs("executors-without-python"),
        # Two tasks at once leave some of the pool's workers for the driver.
        "spark.executor.cores": "1",
        "spark.kubernetes.container.image": f"{images}/{EXECUTOR}",
        "spark.driver.extraClassPath": str(connector_jar()),
    }


def _confs(release: Release, namespace: Namespace, images: str, tables: Path, directory: Path) -> dict[str, str]:
    template = _template(release)
    # Each tenant would mount its own; here one session acts as both.
    others = {name: release.mounts / name for name in (AUTHORITY, TENANTS)}
    _mount_here(namespace, template, others)
    (directory / "pod.yaml").write_text(yaml.safe_dump(template))
    (directory / "hosts").write_text(_hosts(release))
    server = client.Configuration.get_default_copy().host
    address = address_towards(server)
    volume = f"{_EXECUTORS}volumes.persistentVolumeClaim.{TABLES}."
    told = {**release.confs(""), **release.confs("pool-default"), **release.confs("writer")}
    # The notes have a placeholder here, because they cannot know a job's Spark. The driver is not a pod.
    del told["spark.jars"], told["spark.kubernetes.driver.podTemplateFile"]
    return {
        **told,
        "spark.master": f"k8s://{server}",
        "spark.task.maxFailures": "1",
        "spark.executor.instances": "2",
        "spark.executor.cores": "2",
        "spark.executor.memory": "768m",
        f"{_EXECUTORS}request.cores": "100m",
        f"{_EXECUTORS}podTemplateFile": str(directory / "pod.yaml"),
        **{f"{_EXECUTORS}secrets.{name}": str(place) for name, place in others.items()},
        f"{volume}mount.path": str(tables),
        f"{volume}options.claimName": TABLES,
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": f"{images}/updraft-spark:{TAG}",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        # The driver is not a pod, so it does not use the cluster's DNS.
        "spark.driver.extraJavaOptions": f"-Djdk.net.hosts.file={directory / 'hosts'}",
        # Executors and the writer write into directories that the driver creates, as another user.
        "spark.hadoop.fs.permissions.umask-mode": "000",
        # An executor's first connection loads its classes, on a fraction of a CPU.
        "spark.updraft.udf.connectTimeout": "60s",
        "spark.updraft.write.connectTimeout": "60s",
    }


def confs_of_sidecars(release: Release, images: str, template: Path, *, executors: int) -> dict[str, str]:
    """Return the confs of a session whose executor pods use the chart's sidecar template and no other pool."""
    server = client.Configuration.get_default_copy().host
    address = address_towards(server)
    told = release.confs("pool-default-sidecar")
    assert told.pop(f"{_EXECUTORS}podTemplateFile") == template.name
    return {
        **told,
        "spark.master": f"k8s://{server}",
        "spark.task.maxFailures": "1",
        "spark.executor.instances": str(executors),
        "spark.executor.cores": "2",
        "spark.executor.memory": "768m",
        f"{_EXECUTORS}request.cores": "100m",
        f"{_EXECUTORS}podTemplateFile": str(template),
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": f"{images}/updraft-spark:{TAG}",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.updraft.udf.connectTimeout": "60s",
    }


def _template(release: Release) -> dict[str, Any]:
    """Return the notes' pod template with the namespace's restrictions, and one more Secret, which is missing."""
    template = release.job_template("pool-default", f"pool-{SEALED}", "writer")
    spec = template["spec"]
    (container,) = spec["containers"]
    spec["securityContext"], container["securityContext"] = _POD_CONTEXT, _CONTAINER_CONTEXT
    container["volumeMounts"].append({"name": ABSENT, "mountPath": str(release.mounts / ABSENT), "readOnly": True})
    spec["volumes"].append({"name": ABSENT, "secret": {"secretName": ABSENT, "optional": True}})
    return template


def _mount_here(namespace: Namespace, template: dict[str, Any], others: Mapping[str, Path]) -> None:
    """Write the Secrets of the template's volumes, and others, where executors have them, for the driver to read."""
    spec = template["spec"]
    places = {mount["name"]: Path(mount["mountPath"]) for mount in spec["containers"][0]["volumeMounts"]}
    secrets = {volume["secret"]["secretName"]: places[volume["name"]] for volume in spec["volumes"]}
    del secrets[ABSENT]
    for name, place in {**secrets, **others}.items():
        place.mkdir(exist_ok=True)
        for file, content in namespace.secret(name).items():
            (place / file).write_text(content)


def _hosts(release: Release) -> str:
    """Return a hosts file with this machine's own names, because the JVM uses it instead of the system's."""
    components = ("pool-default", f"pool-{SEALED}", f"pool-{SHARED}", "writer")
    lines = [f"{release.cluster_ip(component)} {release.host(component)}" for component in components]
    return "\n".join([*lines, f"127.0.0.1 localhost {socket.gethostname()}", ""])


def address_towards(server: str) -> str:
    """Return this machine's address that the cluster's pods can reach."""
    host, _, port = server.rpartition("//")[2].partition(":")
    with socket.create_connection((host, int(port or 443)), timeout=60) as connection:
        return str(connection.getsockname()[0])
