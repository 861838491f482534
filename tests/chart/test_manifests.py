# SPDX-License-Identifier: Apache-2.0
"""Each supported Kubernetes accepts every manifest, also for values that use everything."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import kubernetes_validate
import pytest
import yaml

from tests.chart.chart import CHART, NEWEST_KUBERNETES, ChartError, Manifest, lint, render
from tests.chart.everything import EVERYTHING

_KUBERNETES = [f"1.{minor}" for minor in range(27, 38)]


def _own(manifests: tuple[Manifest, ...]) -> list[Manifest]:
    """Return the manifests of Kubernetes' own kinds."""
    core = (
        "v1",
        "apps/v1",
        "batch/v1",
        "policy/v1",
        "autoscaling/v2",
        "networking.k8s.io/v1",
        "rbac.authorization.k8s.io/v1",
    )
    return [manifest for manifest in manifests if manifest["apiVersion"] in core]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
@pytest.mark.parametrize("kubernetes", _KUBERNETES)
def test_each_kubernetes_accepts_every_manifest(kubernetes: str, values: dict[str, Any]) -> None:
    release = render(values)
    for manifest in _own(release.manifests):
        kubernetes_validate.validate(manifest, kubernetes, strict=True)
    assert {manifest["metadata"]["name"] for manifest in release.all("Deployment")} >= {"air-updraft-writer"}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    assert "0 chart(s) failed" in lint(values)


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(ChartError, match=r"1\.27"):
        render(kubernetes="1.26")


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ({"pool": {}}, "pool"),
        ({"common": {"replicas": -1}}, "replicas"),
        ({"common": {"replicas": "three"}}, "replicas"),
        ({"pools": {"Upper_Case": {}}}, "Upper_Case"),
        ({"pools": {"default": {"workers": {"count": 0}}}}, "workers.count"),
        ({"pools": {"default": {"roots": ["/data"]}}}, "roots"),
        ({"pools": {"default": {"workers": {"functions": {"modules": ["not a module"]}}}}}, "modules"),
        ({"writer": {"roots": ["relative"]}}, "roots"),
        ({"writer": {"workers": 2}}, "workers"),
        ({"common": {"tls": {"mode": "on"}}}, "mode"),
        ({"common": {"tls": {"mode": "secret"}}}, "tls.secretName"),
        ({"common": {"tls": {"mode": "certManager"}}}, "tls.issuerRef.name"),
        (
            {"common": {"image": {"registry": ""}}},
            r"where is the image updraft-pool\? .* common\.image\.registry=registry\.example/data",
        ),
        ({"common": {"container": {"image": "ours"}}}, "container"),
        ({"common": {"podTemplate": {"labels": {}}}}, "labels"),
        ({"common": {"service": {"spec": {"type": "ExternalName"}}}}, "type"),
        ({"writer": {"image": {"digest": "latest"}}}, "digest"),
        ({"pools": {"default": {"front": {"podTemplate": {}}}}}, "podTemplate"),
        (
            {"common": {"podTemplate": {"spec": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}}},
            "maxSkew is required",
        ),
        ({"common": {"autoscaling": {"mode": "hpa", "cpuPercent": 0}}}, "cpuPercent"),
        ({"common": {"settings": {"queue-limit": 3}}}, "queue-limit"),
        (
            {"poolDefaults": {"workers": {"sessionFunctions": ""}}},
            "`unsigned` lets everybody with a token run code in the pods; `signed` runs only what a driver has signed",
        ),
        ({"poolDefaults": {"workers": {"sessionFunctions": "maybe"}}}, "sessionFunctions"),
        ({"poolDefaults": {"workers": {"sessionFunctions": "signed"}}}, "front.signers, a ConfigMap of the drivers"),
        ({"poolDefaults": {"front": {"signers": "drivers"}}}, "goes with workers.sessionFunctions `signed`"),
        ({"poolDefaults": {"front": None}}, "front is required"),
        # Values that belong to the pool's other half.
        ({"pools": {"default": {"workers": {"tls": {"mode": "off"}}}}}, "tls"),
        ({"pools": {"default": {"image": {"tag": "ours"}}}}, "image"),
        ({"monitoring": {"certificateExpiryDays": 0}}, "certificateExpiryDays"),
        # Misspelled names.
        ({"common": {"replica": 3}}, "common: Additional property replica is not allowed"),
        ({"writer": {"rots": []}}, "writer: Additional property rots is not allowed"),
        ({"pools": {"red": {"worker": {}}}}, r"pools\.red: Additional property worker is not allowed"),
        ({"poolDefaults": {"front": {"signer": ""}}}, r"poolDefaults\.front: Additional property signer"),
        ({"pools": {"Red": {}}}, r"pools\.Red: the name of a pool is part of the names of its resources"),
        ({"fullnameOverride": "x" * 40, "pools": {"of-the-whole-house": {}}}, "of-the-whole-house-cluster is longer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_refused_by_naming_it(mistake: dict[str, Any], named: str) -> None:
    with pytest.raises(ChartError, match=named):
        render(mistake)


def test_the_schema_has_no_rule_whose_violations_newer_helm_reports_elsewhere() -> None:
    """Helm from 3.18 on reports a violated `propertyNames` at the path of another value."""
    assert "propertyNames" not in (CHART / "values.schema.json").read_text()


def test_every_resource_and_pod_has_the_organisations_labels() -> None:
    release = render({**EVERYTHING, "commonLabels": {"owner": "data", "app.kubernetes.io/name": "other"}})
    labelled = [manifest for manifest in release.manifests if manifest["metadata"]["name"] != "ours"]
    labelled += [deployment["spec"]["template"] for deployment in release.all("Deployment")]
    for manifest in labelled:
        labels = manifest["metadata"]["labels"]
        assert (labels["owner"], labels["app.kubernetes.io/name"]) == ("data", "updraft")


def test_catalogs_of_charts_show_an_icon() -> None:
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    kind, _, data = icon.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(b64decode(data)).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_broken_manifest_would_be_found() -> None:
    (deployment, *_) = render().all("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["probes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST_KUBERNETES, strict=True)
