# SPDX-License-Identifier: Apache-2.0
"""`helm test`: restricted pods that call every pool and the writer by its Service, as a client would."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import render
from tests.support.paths import VERSION
from updraft_cli.commands.doctor import Doctor

_TLS = {"mode": "secret", "secretName": "ours"}


def _pods(values: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Return the pods by the name of the Service that each calls."""
    return {pod["metadata"]["name"].removesuffix("-test"): pod for pod in render(values).all("Pod")}


def _specs(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [pod["spec"] for pod in _pods(values).values()]


def _arguments(pod: dict[str, Any]) -> dict[str, str]:
    (container,) = pod["containers"]
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])


def test_every_pool_and_the_writer_is_called_by_its_service() -> None:
    pods = _pods({"pools": {"default": {}, "etl": {}}})
    assert {name: _arguments(pod["spec"])["endpoint"] for name, pod in pods.items()} == {
        "air-updraft-pool-default": "grpc://air-updraft-pool-default.data:8815",
        "air-updraft-pool-etl": "grpc://air-updraft-pool-etl.data:8815",
        "air-updraft-writer": "grpc://air-updraft-writer.data:8816",
    }
    assert {pod["metadata"]["annotations"]["helm.sh/hook"] for pod in pods.values()} == {"test"}


def test_helm_can_read_their_logs_afterwards() -> None:
    """`helm test --logs` asks for the log of a pod's only container, once every pod has ended."""
    for pod in _pods().values():
        assert len(pod["spec"]["containers"]) == 1
        assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


@pytest.mark.parametrize("values", [{}, {"common": {"tls": _TLS}}], ids=["defaults", "tls"])
def test_their_arguments_are_options_of_the_command(values: dict[str, Any]) -> None:
    for pod in _specs(values):
        assert pod["containers"][0]["command"] == ["updraft", "doctor"]
        assert {name.replace("-", "_") for name in _arguments(pod)} <= set(Doctor.model_fields)


def test_they_run_the_pools_image_and_present_the_token_of_each() -> None:
    values = {
        "common": {"image": {"registry": "registry.example"}},
        "pools": {"default": {"workers": {"image": {"tag": "ours"}}, "front": {"auth": {"existingSecret": "mine"}}}},
        "writer": {"auth": {"insecureNoToken": True}},
    }
    pool, writer = _specs(values)
    assert {pod["containers"][0]["image"] for pod in (pool, writer)} == {"registry.example/updraft-pool:ours"}
    assert [volume["secret"]["secretName"] for volume in pool["volumes"] if "secret" in volume] == ["mine"]
    assert not any("secret" in volume for volume in writer["volumes"])
    assert ["token-file" in _arguments(pod) for pod in (pool, writer)] == [True, False]


def test_a_writer_alone_is_called_from_the_pools_image_too() -> None:
    ((name, pod),) = _pods({"pools": {"default": None}}).items()
    assert name == "air-updraft-writer"
    assert pod["spec"]["containers"][0]["image"] == f"registry.test/updraft-pool:{VERSION}"


def test_they_trust_the_authority_in_the_secret() -> None:
    (pod, _) = _specs({"common": {"tls": {"mode": "certManager", "issuerRef": {"name": "ours"}}}})
    assert _arguments(pod)["endpoint"].startswith("grpc+tls://")
    tls = next(volume for volume in pod["volumes"] if volume["name"] == "tls")
    assert tls["secret"] == {
        "secretName": "air-updraft-pool-default-tls",
        "defaultMode": 0o440,
        # Otherwise a Secret without ca.crt would silently keep the pod from starting.
        "optional": True,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }


def test_they_trust_the_systems_authorities_if_the_secret_has_none() -> None:
    for pod in _specs({"common": {"tls": {**_TLS, "authorityKey": ""}}}):
        assert "ca-file" not in _arguments(pod)
        assert not any(volume["name"] == "tls" for volume in pod["volumes"])


def test_services_that_require_client_certificates_are_skipped() -> None:
    pool = {"front": {"tls": {**_TLS, "clientCertificates": True}}}
    assert list(_pods({"pools": {"default": pool}})) == ["air-updraft-writer"]
    assert render({"pools": {"default": pool}, "writer": {"enabled": False}}).all("Pod") == []


def test_they_are_restricted_and_cheap() -> None:
    for pod in _specs():
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"] == {"memory": "512Mi"}
