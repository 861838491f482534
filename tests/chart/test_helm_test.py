# SPDX-License-Identifier: Apache-2.0
"""`helm test`: one restricted pod that calls every pool and the writer by its Service, as a client would."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.chart import render
from tests.support.paths import VERSION
from updraft_cli.commands.doctor import Doctor

_TLS = {"mode": "secret", "secretName": "ours"}


def _pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return render(values).one("Pod", "air-updraft-test")


def _arguments(container: dict[str, Any]) -> dict[str, str]:
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])


def test_every_pool_and_the_writer_is_called_by_its_service() -> None:
    pod = _pod({"pools": {"default": {}, "etl": {}}})
    asked = [_arguments(container)["endpoint"] for container in pod["spec"]["containers"]]
    assert asked == [
        "grpc://air-updraft-pool-default.data:8815",
        "grpc://air-updraft-pool-etl.data:8815",
        "grpc://air-updraft-writer.data:8816",
    ]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"


@pytest.mark.parametrize("values", [{}, {"common": {"tls": _TLS}}], ids=["defaults", "tls"])
def test_its_arguments_are_options_of_the_command(values: dict[str, Any]) -> None:
    for container in _pod(values)["spec"]["containers"]:
        assert container["command"] == ["updraft", "doctor"]
        assert {name.replace("-", "_") for name in _arguments(container)} <= set(Doctor.model_fields)


def test_it_runs_the_pools_image_and_presents_the_token_of_each() -> None:
    values = {
        "common": {"image": {"registry": "registry.example"}},
        "pools": {"default": {"workers": {"image": {"tag": "ours"}}, "front": {"auth": {"existingSecret": "mine"}}}},
        "writer": {"auth": {"insecureNoToken": True}},
    }
    pod = _pod(values)["spec"]
    assert {container["image"] for container in pod["containers"]} == {"registry.example/updraft-pool:ours"}
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == ["mine"]
    assert ["token-file" in _arguments(container) for container in pod["containers"]] == [True, False]


def test_a_writer_alone_is_called_from_the_pools_image_too() -> None:
    (container,) = _pod({"pools": {"default": None}})["spec"]["containers"]
    assert (container["name"], container["image"]) == ("writer", f"registry.test/updraft-pool:{VERSION}")


def test_it_trusts_the_authority_in_the_secret() -> None:
    pod = _pod({"common": {"tls": {"mode": "certManager", "issuerRef": {"name": "ours"}}}})["spec"]
    assert _arguments(pod["containers"][0])["endpoint"].startswith("grpc+tls://")
    tls = next(volume for volume in pod["volumes"] if volume["name"] == "pool-default-tls")
    assert tls["secret"] == {
        "secretName": "air-updraft-pool-default-tls",
        "defaultMode": 0o440,
        # Otherwise a Secret without it would silently keep the pod from starting.
        "optional": True,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }


def test_it_trusts_the_systems_authorities_if_the_secret_has_none() -> None:
    pod = _pod({"common": {"tls": {**_TLS, "authorityKey": ""}}})["spec"]
    assert all("ca-file" not in _arguments(container) for container in pod["containers"])
    assert not any(volume["name"].endswith("-tls") for volume in pod["volumes"])


def test_services_that_require_client_certificates_are_skipped() -> None:
    pool = {"front": {"tls": {**_TLS, "clientCertificates": True}}}
    (container,) = _pod({"pools": {"default": pool}})["spec"]["containers"]
    assert container["name"] == "writer"
    assert render({"pools": {"default": pool}, "writer": {"enabled": False}}).all("Pod") == []


def test_it_is_restricted_and_cheap() -> None:
    pod = _pod()["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"] == {"memory": "512Mi"}
