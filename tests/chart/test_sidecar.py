# SPDX-License-Identifier: Apache-2.0
"""Pod template that gives each executor its own pool as a sidecar."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from kubernetes_validate import validate

from tests.chart.chart import NEWEST_KUBERNETES, ChartError, notes, render

_NAME = "air-updraft-pool-default-sidecar"
_ENDPOINT = "grpc+unix:///run/updraft-pool/pool.sock"
_TOLD: dict[str, Any] = {"executorSidecar": True}


def _template(**values: Any) -> dict[str, Any]:
    text = render({"pools": {"default": {**_TOLD, **values}}}).one("ConfigMap", _NAME)["data"]["executor.yaml"]
    return dict(yaml.safe_load(text))


def _sidecars(**values: Any) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in _template(**values)["spec"]["initContainers"]}


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def _mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def test_there_is_none_unless_it_is_asked_for() -> None:
    assert not [found for found in render({}).all("ConfigMap") if found["metadata"]["name"].endswith("-sidecar")]


def test_kubernetes_takes_the_template_once_spark_has_named_an_image() -> None:
    pod = _template()
    pod["metadata"] = {"name": "executor"}
    pod["spec"]["containers"][0]["image"] = "spark"
    validate(pod, NEWEST_KUBERNETES, strict=True)


def test_the_workers_start_first_and_the_executor_waits_for_the_front() -> None:
    workers, front = _template()["spec"]["initContainers"]
    assert (workers["name"], front["name"]) == ("workers", "front")
    assert "startupProbe" not in workers
    assert front["startupProbe"]["grpc"]["service"] == "arrow.flight.protocol.FlightService"
    for container in (workers, front):
        # They run as long as the executor.
        assert container["restartPolicy"] == "Always"
        assert not {"ports", "lifecycle", "readinessProbe"} & container.keys()


def test_the_executor_and_the_front_alone_see_the_socket() -> None:
    (executor,) = _template()["spec"]["containers"]
    sidecars = _sidecars()
    assert _mounts(executor) == {"pool-socket": "/run/updraft-pool"}
    assert _mounts(sidecars["front"])["pool-socket"] == "/run/updraft-pool"
    assert "pool-socket" not in _mounts(sidecars["workers"])
    (volume,) = [found for found in _template()["spec"]["volumes"] if found["name"] == "pool-socket"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "512Mi"}
    environment = _environment(sidecars["front"])
    assert environment["UPDRAFT_LISTEN"] == ""
    assert f"grpc+unix://{environment['UPDRAFT_LISTEN_UNIX']}" == _ENDPOINT
    assert environment["UPDRAFT_LISTEN_UNIX_ACCESS"] == "group"
    assert environment["UPDRAFT_METRICS_LISTEN"].startswith("127.0.0.1:")


def test_no_secret_of_the_pool_or_the_job_reaches_the_executors_pod() -> None:
    spec = _template(
        front={
            "auth": {"existingSecret": "tokens", "plainTokens": False},
            "tls": {"mode": "secret", "secretName": "certificate"},
            "settings": {"identitiesFile": "/etc/updraft/tokens/identities.toml"},
        }
    )["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not [volume for volume in spec["volumes"] if "secret" in volume]
    assert not [
        name for name in _environment(spec["initContainers"][1]) if "IDENTITIES" in name or "TOKEN_FILE" in name
    ]


@pytest.mark.parametrize("pool_has", ["/var/log/updraft/audit", "-"])
def test_a_pool_that_keeps_an_audit_log_keeps_one_beside_executors_too(pool_has: str) -> None:
    workers, front = _template(front={"settings": {"auditFile": pool_has, "auditFailure": "count"}})["spec"][
        "initContainers"
    ]
    kept = {name: value for name, value in _environment(front).items() if "AUDIT" in name}
    assert kept == {"UPDRAFT_AUDIT_FILE": "-", "UPDRAFT_AUDIT_FAILURE": "count"}
    assert not [name for name in _environment(workers) if "AUDIT" in name]
    assert "UPDRAFT_AUDIT_FILE" not in _environment(_sidecars()["front"])


def test_the_containers_are_restricted_and_of_users_of_their_own() -> None:
    spec = _template()["spec"]
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"] == {**restricted, "fsGroup": 10001}
    contexts = [container["securityContext"] for container in [*spec["initContainers"], *spec["containers"]]]
    assert [context.get("runAsUser") for context in contexts] == [10002, 10001, None]
    for context in contexts:
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not context["allowPrivilegeEscalation"]


def test_it_is_as_large_as_a_pod_of_the_pool() -> None:
    resources = {"requests": {"cpu": "1", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    workers = _sidecars(workers={"resources": resources, "image": {"repository": "team"}})["workers"]
    assert workers["resources"]["limits"] == resources["limits"]
    assert "/team:" in workers["image"]


def test_the_notes_say_the_two_confs() -> None:
    said = notes({"pools": {"default": _TOLD}})
    assert _ENDPOINT in said
    assert "spark.kubernetes.executor.podTemplateFile" in said
    assert f"get configmap {_NAME} --output go-template='{{{{index .data \"executor.yaml\"}}}}'" in said


def test_a_kubernetes_that_cannot_start_it_is_told() -> None:
    with pytest.raises(ChartError, match=r"executorSidecar needs Kubernetes 1\.29"):
        render({"pools": {"default": _TOLD}}, kubernetes="1.28")
