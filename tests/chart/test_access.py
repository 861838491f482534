# SPDX-License-Identifier: Apache-2.0
"""Access to the services: tokens, certificates, networks."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.chart.chart import ChartError, Release, notes, render

_POOL, _WRITER = "air-updraft-pool-default", "air-updraft-writer"
_MAKES_TOKENS = ("Job", "Role", "RoleBinding")


def _volume(release: Release, name: str) -> dict[str, Any] | None:
    return next((volume for volume in release.pod(_POOL)["volumes"] if volume["name"] == name), None)


def test_a_token_is_required() -> None:
    release = render()
    assert (_volume(release, "tokens") or {})["secret"]["secretName"] == f"{_POOL}-token"
    assert release.environment(_POOL)["UPDRAFT_TOKEN_FILE"] == "/etc/updraft/tokens/tokens"


def test_an_existing_secret_is_used_and_none_is_made() -> None:
    release = render({"common": {"auth": {"existingSecret": "ours"}}})
    assert [release.all(kind) for kind in _MAKES_TOKENS] == [[], [], []]
    assert (_volume(release, "tokens") or {})["secret"]["secretName"] == "ours"


def test_a_service_without_tokens_has_to_be_asked_for() -> None:
    release = render({"common": {"auth": {"insecureNoToken": True}}})
    assert [release.all(kind) for kind in _MAKES_TOKENS] == [[], [], []]
    assert _volume(release, "tokens") is None
    assert release.environment(_POOL)["UPDRAFT_INSECURE_NO_TOKEN"] == "true"
    assert "tokenFile" not in notes({"common": {"auth": {"insecureNoToken": True}}})


_IDENTITIES = {"settings": {"identitiesFile": "/etc/updraft/tokens/identities.toml"}}


def test_identities_alone_may_be_admitted() -> None:
    front = {"auth": {"plainTokens": False, "existingSecret": "ours"}, **_IDENTITIES}
    release = render({"poolDefaults": {"front": front}})
    assert "UPDRAFT_TOKEN_FILE" not in release.environment(_POOL)
    assert release.environment(_POOL)["UPDRAFT_IDENTITIES_FILE"] == "/etc/updraft/tokens/identities.toml"
    assert (_volume(release, "tokens") or {})["secret"]["secretName"] == "ours"


def test_client_certificates_need_no_token() -> None:
    tls = {"mode": "secret", "secretName": "ours", "clientCertificates": True}
    release = render({"common": {"auth": {"plainTokens": False}, "tls": tls}})
    assert "UPDRAFT_TOKEN_FILE" not in release.environment(_POOL)
    assert _volume(release, "tokens") is None
    assert release.all("Job") == []


@pytest.mark.parametrize("front", [{}, _IDENTITIES, {"auth": {"existingSecret": "ours"}}])
def test_somebody_has_to_be_admitted(front: dict[str, Any]) -> None:
    values = {
        "common": {"auth": {"plainTokens": False}},
        "poolDefaults": {"front": front},
        "writer": {"enabled": False},
    }
    with pytest.raises(ChartError, match=r"pool-default: auth\.plainTokens is false, and nobody is named instead"):
        render(values)


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
    assert {port["port"] for port in observation["ports"]} == {"health", "metrics"}


def test_only_the_monitoring_namespace_observes_unless_others_are_named() -> None:
    def observers(policy: dict[str, Any]) -> Any:
        release = render({"common": {"networkPolicy": policy}})
        return release.one("NetworkPolicy", _POOL)["spec"]["ingress"][1].get("from")

    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert observers({}) == [monitoring]
    assert observers({"observers": [{"podSelector": {}}]}) == [{"podSelector": {}}]
    assert observers({"observers": None}) is None


def test_an_empty_list_of_observers_is_refused_because_it_used_to_mean_everybody() -> None:
    with pytest.raises(ChartError, match=r"set common\.networkPolicy\.observers to null to admit everybody"):
        render({"common": {"networkPolicy": {"observers": []}}})


@pytest.mark.parametrize("name", [_POOL, _WRITER])
@pytest.mark.parametrize(
    ("address", "is_reached"),
    [
        ("10.0.3.17", True),
        ("93.184.215.14", True),
        # A node's DNS cache.
        ("169.254.20.10", True),
        ("2001:db8::1", True),
        ("169.254.169.254", False),
        ("169.254.170.23", False),
        ("100.100.100.200", False),
        ("fd00:ec2::254", False),
    ],
)
def test_the_credentials_of_nodes_are_out_of_reach(name: str, address: str, is_reached: bool) -> None:
    policy = render().one("NetworkPolicy", name)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    blocks = [peer["ipBlock"] for rule in policy["egress"] for peer in rule["to"] if "ipBlock" in peer]
    reaching = [block for block in blocks if _is_in(address, block["cidr"])]
    assert [not any(_is_in(address, hole) for hole in block["except"]) for block in reaching] == [is_reached]


def _is_in(address: str, network: str) -> bool:
    return ip_address(address) in ip_network(network)


@pytest.mark.parametrize(("egress", "types"), [(None, ["Ingress"]), ([], ["Ingress", "Egress"])])
def test_operators_say_what_pods_may_reach(egress: Any, types: list[str]) -> None:
    policy = render({"common": {"networkPolicy": {"egress": egress}}}).one("NetworkPolicy", _POOL)
    assert policy["spec"]["policyTypes"] == types
    assert policy["spec"].get("egress") == egress


def test_service_accounts_have_no_token_and_can_be_replaced() -> None:
    release = render({"writer": {"serviceAccount": {"name": "storage"}}})
    accounts = {
        each["metadata"]["name"]: each["automountServiceAccountToken"] for each in release.all("ServiceAccount")
    }
    owners_of_secrets = {f"{_POOL}-token": False, f"{_WRITER}-token": False}
    assert accounts == {_POOL: False, "air-updraft-tokens": False, **owners_of_secrets}
    assert release.pod(_WRITER)["serviceAccountName"] == "storage"


def test_notes_say_what_each_missing_protection_allows() -> None:
    assert "Protections that are off" in notes()
    everything = {
        "common": {
            "auth": {"insecureNoToken": True},
            "networkPolicy": {"observers": None, "egress": None},
        }
    }
    said = notes(everything)
    for words in (
        "anyone who can reach it can use it",
        "cross the network in plain text",
        "every pod of the cluster can read its metrics and status",
        "metadata service",
        "anyone who may connect can run any code in its workers",
    ):
        assert words in said, words
    assert "no NetworkPolicy" in notes({"common": {"networkPolicy": {"enabled": False}}})


_NAMED = {"auth": {"existingSecret": "ours"}, **_IDENTITIES}
_ANY_NAMESPACE: list[dict[str, Any]] = [{"namespaceSelector": {}}, {"podSelector": {}}]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"common": {"settings": {"allowRemoteDrain": True}}},
            [
                "pool-default: anyone who may connect can stop its pods",
                "writer: anyone who may connect can stop its pods",
            ],
        ),
        (
            {"poolDefaults": {"front": {"settings": {"allowRemoteStacks": True}}}},
            ["pool-default: anyone who may connect can read the stacks of its workers"],
        ),
        (
            {"poolDefaults": {"front": _NAMED}},
            ["pool-default: a token of the Secret's key `tokens` may act for any tenant"],
        ),
        (
            {"writer": {"networkPolicy": {"clients": _ANY_NAMESPACE}}},
            ["writer: the network policy admits clients from outside namespace data"],
        ),
        (
            {"common": {"networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}}},
            [
                "pool-default: the network policy admits clients from outside",
                "writer: the network policy admits clients",
            ],
        ),
        (
            {"poolDefaults": {"executorSidecar": True}},
            ["pool-default-sidecar: every container of an executor's pod that mounts its socket can use it, without"],
        ),
    ],
    ids=["drain", "stacks", "tokens", "clients", "addresses", "sidecar"],
)
def test_notes_name_a_missing_protection_and_its_component(values: dict[str, Any], says: list[str]) -> None:
    said, by_default = notes(values), notes()
    for words in says:
        assert words in said
        assert words not in by_default
    opened = [line for line in said.splitlines() if any(words in line for words in says)]
    assert len(opened) == len(says)


def test_notes_leave_out_protections_that_values_turn_on() -> None:
    shut = {
        "common": {
            "settings": {"allowRemoteDrain": False},
            "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "spark"}}}]},
        },
        "poolDefaults": {"front": {**_NAMED, "auth": {"existingSecret": "ours", "plainTokens": False}}},
    }
    said = notes(shut)
    for words in ("allowRemoteDrain", "networkPolicy.clients", "auth.plainTokens"):
        assert words not in said


def test_notes_of_a_protected_release_list_nothing() -> None:
    closed = {
        "common": {"tls": {"mode": "secret", "secretName": "certificates"}},
        "poolDefaults": {"workers": {"sessionFunctions": "off", "functions": {"modules": ["ours"]}}},
    }
    assert "Protections that are off" not in notes(closed)


@pytest.mark.parametrize("mode", ["signed", "prefer-signed"])
def test_a_pool_that_looks_at_signatures_reads_its_signers(mode: str) -> None:
    signed = {"poolDefaults": {"front": {"signers": "drivers"}, "workers": {"sessionFunctions": mode}}}
    release, name = render(signed), "air-updraft-pool-default"
    assert {"name": "signers", "configMap": {"name": "drivers"}} in release.pod(name)["volumes"]
    mount = {"name": "signers", "mountPath": "/etc/updraft/signers", "readOnly": True}
    assert mount in release.container(name)["volumeMounts"]
    assert mount not in release.container(name, "workers")["volumeMounts"]
    assert release.environment(name)["UPDRAFT_SIGNERS_FILE"] == "/etc/updraft/signers/signers.toml"
    for container in ("front", "workers"):
        assert release.environment(name, container)["UPDRAFT_SESSION_FUNCTIONS"] == mode
    assert "UPDRAFT_SIGNERS_FILE" not in release.environment(name, "workers")
    assert ("can run any code" in notes(signed)) == (mode == "prefer-signed")


@pytest.mark.parametrize(("mode", "is_shown"), [("unsigned", True), ("prefer-signed", True), ("signed", False)])
def test_notes_show_the_confs_of_executors_without_python_if_a_pool_can_run_their_workers(
    mode: str, is_shown: bool
) -> None:
    front = {} if mode == "unsigned" else {"signers": "drivers"}
    said = notes({"poolDefaults": {"front": front, "workers": {"sessionFunctions": mode}}})
    *_, section = said.partition("\nexecutors-without-python:\n")
    confs = dict(re.findall(r"^  (spark\.\S+) +(\S+)$", section, re.MULTILINE))
    shown = {
        "spark.plugins": "io.updraft.spark.WorkerPlugin",
        "spark.pyspark.python": "/opt/updraft/updraft-python",
        "spark.pyspark.driver.python": "python3",
    }
    assert confs == (shown if is_shown else {})
