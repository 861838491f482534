# SPDX-License-Identifier: Apache-2.0
"""Jobs in other namespaces and callers outside the cluster: how they are admitted and get a token."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart.chart import NEWEST_KUBERNETES, ChartError, Manifest, Release, job_template, notes, render
from tests.chart.custom_resources import validate
from tests.support.paths import REPOSITORY
from updraft_cli.commands.tokens import Tokens

_POOL, _WRITER, _TOKENS = "air-updraft-pool-default", "air-updraft-writer", "air-updraft-tokens"
_EXAMPLES = REPOSITORY / "docs/examples"
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ETL = {"pools": {"default": {"clientNamespaces": ["etl", "data"]}}}


def _guide(heading: str) -> dict[str, Any]:
    """Return the values of a section of the guide."""
    text = (REPOSITORY / "docs/guides/clients.md").read_text()
    (block,) = _YAML.findall(text.partition(f"## {heading}\n")[2].partition("\n## ")[0])
    return dict(yaml.safe_load(block))


def _clients(release: Release, name: str) -> list[Any]:
    return list(release.one("NetworkPolicy", name)["spec"]["ingress"][0]["from"])


def _arguments(release: Release) -> list[str]:
    (job,) = release.all("Job")
    return list(job["spec"]["template"]["spec"]["containers"][0]["args"])


def _there(release: Release, namespace: str) -> dict[str, Manifest]:
    return {each["kind"]: each for each in release.manifests if each["metadata"].get("namespace") == namespace}


def test_the_policy_admits_the_namespaces_of_clients_beside_its_own() -> None:
    release = render(_ETL)
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["etl", "data"]}
    assert _clients(release, _POOL) == [{"podSelector": {}}, {"namespaceSelector": {"matchExpressions": [names]}}]
    assert _clients(release, _WRITER) == [{"podSelector": {}}]


def test_the_job_copies_the_token_of_the_pool_that_they_may_use() -> None:
    arguments = _arguments(render(_ETL))
    copies = [argument.removeprefix("--copies=") for argument in arguments if argument.startswith("--copies=")]
    assert copies == [f"etl/{_POOL}-token"]
    assert Tokens(names=[f"{_POOL}-token"], copies=copies)
    assert not any(argument.startswith("--copies") for argument in _arguments(render()))


def test_it_may_change_what_it_copies_and_nothing_else_there() -> None:
    there = _there(render(_ETL), "etl")
    assert set(there) == {"ServiceAccount", "Role", "RoleBinding"}
    rights = {
        (rule["resources"][0], verb): rule.get("resourceNames")
        for rule in there["Role"]["rules"]
        for verb in rule["verbs"]
    }
    assert rights == {
        ("secrets", "create"): None,
        ("secrets", "get"): [f"{_POOL}-token"],
        ("secrets", "patch"): [f"{_POOL}-token"],
        ("serviceaccounts", "get"): [f"{_POOL}-token"],
    }
    assert there["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": _TOKENS, "namespace": "data"}]
    assert not there["ServiceAccount"]["automountServiceAccountToken"]


def test_a_secret_of_yours_is_not_copied() -> None:
    release = render({"common": {"clientNamespaces": ["etl"], "auth": {"existingSecret": "ours"}}})
    assert _there(release, "etl") == {}
    assert len(_clients(release, _WRITER)) == 2


def test_the_notes_say_where_the_token_is() -> None:
    assert "Also for jobs in etl, where a Job puts a Secret of that name" in notes(_ETL)
    assert "Also for jobs in" not in notes()


def test_a_name_that_no_namespace_has_is_refused() -> None:
    with pytest.raises(ChartError, match="clientNamespaces"):
        render({"common": {"clientNamespaces": ["*"]}})


_OUTSIDE = {
    "type": "LoadBalancer",
    "loadBalancerClass": "cloud/balancer",
    "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"],
    "externalTrafficPolicy": "Local",
}


@pytest.mark.parametrize("name", [_POOL, _WRITER])
def test_callers_outside_reach_the_service_alone_and_no_admin_port(name: str) -> None:
    annotations = {"cloud/balancer": "internal"}
    release = render({"common": {"service": {"annotations": annotations, "spec": _OUTSIDE}}})
    service = release.one("Service", f"{name}-cluster")
    kubernetes_validate.validate(service, NEWEST_KUBERNETES, strict=True)
    assert service["metadata"]["annotations"] == annotations
    assert _OUTSIDE.items() <= service["spec"].items()
    assert [port["name"] for port in service["spec"]["ports"]] == ["flight"]
    headless = release.one("Service", name)
    assert (headless["spec"]["clusterIP"], "type" in headless["spec"]) == ("None", False)
    assert [port["name"] for port in headless["spec"]["ports"]] == ["flight", "health"]


def test_the_notes_say_that_clients_outside_can_reach_the_service() -> None:
    assert f"clients outside the cluster can reach Service {_POOL}-cluster" in notes(
        {"common": {"service": {"spec": {"type": "NodePort"}}}}
    )
    assert "clients outside the cluster" not in notes()


def _example(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((_EXAMPLES / name).read_text()))


def test_the_gateway_leads_to_services_of_the_release() -> None:
    values = {**_guide("A gateway"), "fullnameOverride": "updraft"}
    release = render(values)
    gateway, *routes = _example("gateway.yaml")
    listeners = {listener["name"]: listener for listener in gateway["spec"]["listeners"]}
    for manifest in (gateway, *routes):
        validate(manifest)
    assert [route["kind"] for route in routes] == ["TLSRoute", "GRPCRoute"]
    for route in routes:
        (parent,), (rule,) = route["spec"]["parentRefs"], route["spec"]["rules"]
        (backend,) = rule["backendRefs"]
        ports = release.one("Service", backend["name"])["spec"]["ports"]
        assert ("flight", backend["port"]) in [(port["name"], port["port"]) for port in ports]
        assert parent["name"] == gateway["metadata"]["name"]
        assert [listeners[parent["sectionName"]]["hostname"]] == route["spec"]["hostnames"]
        name = backend["name"].removesuffix("-cluster")
        assert "envoy-gateway-system" in str(_clients(release, name))
    # With TLS passthrough, the pool's own certificate must have the name.
    assert "pool.example.com" in release.one("Certificate", "updraft-pool-default")["spec"]["dnsNames"]


def test_a_load_balancers_addresses_are_admitted_twice() -> None:
    release = render(_guide("Callers outside the cluster"))
    ranges = release.one("Service", f"{_POOL}-cluster")["spec"]["loadBalancerSourceRanges"]
    blocks = [client["ipBlock"]["cidr"] for client in _clients(release, _POOL) if "ipBlock" in client]
    assert blocks == ranges


@pytest.mark.parametrize("told_by", ["the example", "the notes"])
def test_a_job_without_its_secret_starts_and_can_say_so(told_by: str) -> None:
    template = job_template(notes()) if told_by == "the notes" else _example("job-with-secret.yaml")[0]
    kubernetes_validate.validate({**template, "metadata": {"name": "job"}}, NEWEST_KUBERNETES, strict=False)
    assert all(volume["secret"]["optional"] for volume in template["spec"]["volumes"])


def test_no_conf_of_the_notes_mounts_a_secret_that_has_to_be_there() -> None:
    confs = re.findall(r"^  (spark\.\S+)", notes(), re.MULTILINE)
    assert confs
    assert [conf for conf in confs if ".secrets." in conf] == []
