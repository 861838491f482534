# SPDX-License-Identifier: Apache-2.0
"""Each supported Kubernetes accepts every manifest, also for values that use everything."""

from __future__ import annotations

import re
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
    """The manifests whose schema is Kubernetes' own."""
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
        ({"common": {"image": {"pullPolicy": "Sometimes"}}}, "pullPolicy"),
        ({"writer": {"image": {"digest": "latest"}}}, "digest"),
        ({"pools": {"default": {"front": {"sidecars": []}}}}, "sidecars"),
        ({"common": {"topologySpreadConstraints": [{"topologyKey": "zone"}]}}, "maxSkew is required"),
        ({"common": {"autoscaling": {"mode": "hpa", "cpuPercent": 0}}}, "cpuPercent"),
        ({"common": {"settings": {"queue-limit": 3}}}, "queue-limit"),
        (
            {"poolDefaults": {"workers": {"allowSessionFunctions": True}}},
            "workers.allowSessionFunctions is workers.sessionFunctions now: true is `unsigned`, false is `off`",
        ),
        (
            {"poolDefaults": {"workers": {"sessionFunctions": ""}}},
            "`unsigned` lets everybody with a token run code in the pods; `signed` runs only what a driver has signed",
        ),
        ({"poolDefaults": {"workers": {"sessionFunctions": "maybe"}}}, "sessionFunctions"),
        ({"poolDefaults": {"workers": {"sessionFunctions": "signed"}}}, "front.signers, a ConfigMap of the drivers"),
        ({"poolDefaults": {"front": {"signers": "drivers"}}}, "goes with workers.sessionFunctions `signed`"),
        ({"poolDefaults": {"front": None}}, "front is required"),
        # Values of the other half.
        ({"pools": {"default": {"workers": {"tls": {"mode": "off"}}}}}, "tls"),
        ({"pools": {"default": {"front": {"volumes": []}}}}, "volumes"),
        ({"monitoring": {"intervalSeconds": 0}}, "intervalSeconds"),
        # Misspelt names.
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


@pytest.mark.parametrize(
    ("earlier", "says"),
    [
        ({"common": {"maxSkew": 2}}, "common.maxSkew is the maxSkew of each entry of common.topologySpreadConstraints"),
        ({"writer": {"maxSkew": 2}}, "writer.maxSkew is the maxSkew of each entry of writer.topologySpreadConstraints"),
        (
            {"pools": {"default": {"maxSkew": 2}}},
            "pools.default.maxSkew is the maxSkew of each entry of pools.default.topologySpreadConstraints now",
        ),
        (
            {"pools": {"default": {"workers": 3}}},
            "pools.default.workers is pools.default.workers.count now: `workers: {count: 3}`",
        ),
        ({"poolDefaults": {"workers": 2}}, "poolDefaults.workers is poolDefaults.workers.count now"),
        (
            {"poolDefaults": {"allowSessionFunctions": True}},
            "poolDefaults.allowSessionFunctions is poolDefaults.workers.sessionFunctions now: true is `unsigned`",
        ),
        (
            {"pools": {"default": {"allowSessionFunctions": False}}},
            "pools.default.allowSessionFunctions is pools.default.workers.sessionFunctions now: true is `unsigned`",
        ),
        (
            {"poolDefaults": {"functions": {"modules": ["ours"]}}},
            "poolDefaults.functions is poolDefaults.workers.functions now",
        ),
        ({"pools": {"default": {"gpu": {"count": 1}}}}, "pools.default.gpu is pools.default.workers.gpu now"),
        ({"pools": {"default": {"tls": {"mode": "off"}}}}, "pools.default.tls is pools.default.front.tls now"),
        ({"poolDefaults": {"auth": {}}}, "poolDefaults.auth is poolDefaults.front.auth now"),
        *(
            (
                {"pools": {"default": {name: value}}},
                f"pools.default.{name} is of one container now: pools.default.front.{name} for the one that has",
            )
            for name, value in {
                "image": {"repository": "ours"},
                "resources": {},
                "settings": {"queueLimit": 3},
                "env": [],
                "scratchSize": "1Gi",
            }.items()
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_of_an_earlier_chart_is_refused_with_what_replaces_it(earlier: dict[str, Any], says: str) -> None:
    with pytest.raises(ChartError, match=re.escape(says)):
        render(earlier)


def test_a_broken_manifest_would_be_found() -> None:
    (deployment, *_) = render().all("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["probes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST_KUBERNETES, strict=True)
