# SPDX-License-Identifier: Apache-2.0
"""Tokens made in the cluster: the Job that makes them and its rights. No manifest contains a token."""

from __future__ import annotations

import re
from typing import Any

from tests.chart.chart import CHART, Manifest, Release, render
from tests.support.paths import VERSION
from updraft_cli.commands.tokens import Tokens

_NAME = "air-updraft-tokens"
_OWN = ["air-updraft-pool-default-token", "air-updraft-writer-token"]


def _job(release: Release) -> Manifest:
    (job,) = release.all("Job")
    return job


def _pod(release: Release) -> dict[str, Any]:
    return dict(_job(release)["spec"]["template"]["spec"])


def _made(release: Release) -> list[str]:
    """Return the names of the Secrets that the Job makes."""
    (container,) = _pod(release)["containers"]
    return [argument for argument in container["args"] if not argument.startswith("--")]


def _mounted(release: Release, name: str) -> str:
    """Return the name of the Secret with the tokens of a Deployment's pods."""
    (volume,) = (volume for volume in release.pod(name)["volumes"] if volume["name"] == "tokens")
    return str(volume["secret"]["secretName"])


def test_every_component_has_a_token_of_its_own() -> None:
    release = render({"pools": {"red": {}, "blue": {}}})
    names = [f"air-updraft-{component}" for component in ("pool-blue", "pool-default", "pool-red", "writer")]
    assert [_mounted(release, name) for name in names] == [f"{name}-token" for name in names] == _made(release)


def test_only_components_that_are_given_no_secret_get_one() -> None:
    pools = {
        "red": {},
        "blue": {"front": {"auth": {"existingSecret": "ours"}}},
        "open": {"front": {"auth": {"insecureNoToken": True}}},
        "default": None,
    }
    assert _made(render({"pools": pools, "writer": {"enabled": False}})) == ["air-updraft-pool-red-token"]


def test_manifests_contain_no_token() -> None:
    assert render().all("Secret") == []


def test_nothing_is_made_up_when_the_chart_is_rendered() -> None:
    """GitOps renders repeatedly and without the cluster."""
    for file in (file for file in (CHART / "templates").rglob("*") if file.is_file()):
        called = re.findall(r"(?:{{-?|\(|\||=)\s*(\w+)", file.read_text())
        others = r"lookup|rand\w+|gen\w*(Key|CA|Cert)\w*|uuidv4|now|getHostByName|htpasswd"
        assert [name for name in called if re.fullmatch(others, name)] == []


def test_it_may_make_secrets_and_read_those_of_the_release_alone() -> None:
    release = render()
    rules = release.one("Role", _NAME)["rules"]
    rights = {(rule["resources"][0], verb): rule.get("resourceNames") for rule in rules for verb in rule["verbs"]}
    assert rights == {
        ("secrets", "create"): None,
        ("secrets", "get"): _OWN,
        ("serviceaccounts", "get"): _OWN,
    }
    (subject,) = release.one("RoleBinding", _NAME)["subjects"]
    assert (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", _NAME, "data")
    assert _pod(release)["serviceAccountName"] == _NAME
    assert not release.one("ServiceAccount", _NAME)["automountServiceAccountToken"]


def test_a_removed_pool_takes_its_secrets_with_it() -> None:
    """Each Secret is owned by a service account with its name, in each namespace with the Secret."""

    def owners(release: Release) -> set[tuple[str, str]]:
        accounts = release.all("ServiceAccount")
        found = {(each["metadata"].get("namespace", "data"), each["metadata"]["name"]) for each in accounts}
        return {(namespace, name) for namespace, name in found if name.endswith("-token")}

    values = {"common": {"clientNamespaces": ["etl"]}}
    with_red = render({**values, "pools": {"red": {}}})
    red = {(namespace, "air-updraft-pool-red-token") for namespace in ("data", "etl")}
    assert owners(with_red) == owners(render(values)) | red
    assert "--owned" in _pod(with_red)["containers"][0]["args"]
    assert not any(
        account["automountServiceAccountToken"]
        for account in with_red.all("ServiceAccount")
        if account["metadata"]["name"].endswith("-token")
    )


def test_the_pod_that_others_wait_for_fits_on_a_full_node() -> None:
    (container,) = _pod(render())["containers"]
    assert container["resources"]["requests"] == {"cpu": "0", "memory": "0"}


def test_no_team_chooses_what_runs_with_these_rights() -> None:
    images = {
        "common": {"image": {"registry": "registry.example"}},
        "poolDefaults": {"workers": {"image": {"repository": "team"}}, "front": {"image": {"repository": "front"}}},
        "writer": {"image": {"tag": "ours"}},
    }
    (container,) = _pod(render(images))["containers"]
    assert container["image"] == "registry.example/updraft-writer:ours"
    assert (
        _pod(render({"writer": {"enabled": False}}))["containers"][0]["image"]
        == f"registry.test/updraft-writer:{VERSION}"
    )


def test_its_arguments_are_those_of_the_command() -> None:
    (container,) = _pod(render())["containers"]
    options = [option for option in container["args"] if option.startswith("--")]
    assert container["command"] == ["updraft", "tokens"]
    assert options == ["--namespace=data", "--owned"]
    assert {"namespace", "owned"} < Tokens.model_fields.keys()


def test_what_it_does_otherwise_is_another_job() -> None:
    def name(values: dict[str, Any]) -> str:
        return str(_job(render(values))["metadata"]["name"])

    assert name({}) == name({"common": {"podTemplate": {"metadata": {"annotations": {"round": "two"}}}}})
    assert name({}) != name({"writer": {"image": {"tag": "ours"}}})
    assert name({}) != name({"pools": {"more": {}}})
    assert len(name({"fullnameOverride": "a" * 60})) <= 63


def test_it_is_restricted() -> None:
    pod = _pod(render())
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"] == {"memory": "256Mi"}
