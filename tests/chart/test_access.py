# SPDX-License-Identifier: Apache-2.0
"""Who may connect: tokens, certificates, networks."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from tests.chart.chart import Release, notes, render

_POOL, _WRITER = "air-updraft-pool-default", "air-updraft-writer"


def _volume(release: Release, name: str) -> dict[str, Any] | None:
    return next((volume for volume in release.pod(_POOL)["volumes"] if volume["name"] == name), None)


def test_a_token_is_generated_and_required_unless_one_is_given() -> None:
    release = render()
    secret = release.one("Secret", "air-updraft-tokens")
    token = b64decode(secret["data"]["token"])
    assert len(token) >= 32
    assert secret["data"]["tokens"] == secret["data"]["token"]
    assert (_volume(release, "tokens") or {})["secret"]["secretName"] == "air-updraft-tokens"
    assert release.environment(_POOL)["UPDRAFT_TOKEN_FILE"] == "/etc/updraft/tokens/tokens"


def test_an_existing_secret_is_used_and_none_is_created() -> None:
    release = render({"common": {"auth": {"existingSecret": "ours"}}})
    assert release.all("Secret") == []
    assert (_volume(release, "tokens") or {})["secret"]["secretName"] == "ours"


def test_a_service_without_tokens_has_to_be_asked_for() -> None:
    release = render({"common": {"auth": {"insecureNoToken": True}}})
    assert release.all("Secret") == []
    assert _volume(release, "tokens") is None
    assert release.environment(_POOL)["UPDRAFT_INSECURE_NO_TOKEN"] == "true"
    assert "tokenFile" not in notes({"common": {"auth": {"insecureNoToken": True}}})


def test_secrets_are_files_and_never_environment() -> None:
    for name in (_POOL, _WRITER):
        container = render({"common": {"tls": {"mode": "secret", "secretName": "tls"}}}).container(name)
        assert "secretKeyRef" not in str(container["env"])
        assert "envFrom" not in container


def test_a_given_certificate_is_served() -> None:
    release = render({"common": {"tls": {"mode": "secret", "secretName": "ours", "clientCertificates": True}}})
    environment = release.environment(_POOL)
    assert (_volume(release, "tls") or {})["secret"]["secretName"] == "ours"
    assert environment["UPDRAFT_TLS_CERTIFICATE_FILE"] == "/etc/updraft/tls/tls.crt"
    assert environment["UPDRAFT_TLS_CLIENT_CA_FILE"] == "/etc/updraft/tls/ca.crt"
    assert release.all("Certificate") == []


def test_cert_manager_issues_for_the_names_of_both_services() -> None:
    tls = {"mode": "certManager", "issuerRef": {"name": "ours"}, "extraDnsNames": ["pool.example"]}
    certificate = render({"common": {"tls": tls}}).one("Certificate", _POOL)["spec"]
    assert {f"{_POOL}.data", f"{_POOL}-cluster.data.svc", "pool.example"} <= set(certificate["dnsNames"])
    assert certificate["issuerRef"]["name"] == "ours"
    assert certificate["secretName"] == f"{_POOL}-tls"


def test_only_the_namespace_may_connect_unless_clients_are_named() -> None:
    (calls, observation) = render().one("NetworkPolicy", _POOL)["spec"]["ingress"]
    assert calls["from"] == [{"podSelector": {}}]
    assert {port["port"] for port in calls["ports"]} == {"flight"}
    assert "from" not in observation
    assert {port["port"] for port in observation["ports"]} == {"health", "metrics"}


@pytest.mark.parametrize(("egress", "types"), [(None, ["Ingress"]), ([], ["Ingress", "Egress"])])
def test_egress_is_unrestricted_until_rules_are_given(egress: Any, types: list[str]) -> None:
    policy = render({"common": {"networkPolicy": {"egress": egress}}}).one("NetworkPolicy", _POOL)
    assert policy["spec"]["policyTypes"] == types


def test_service_accounts_have_no_token_and_can_be_replaced() -> None:
    release = render({"writer": {"serviceAccount": {"name": "storage"}}})
    assert [account["automountServiceAccountToken"] for account in release.all("ServiceAccount")] == [False]
    assert release.pod(_WRITER)["serviceAccountName"] == "storage"
