# SPDX-License-Identifier: Apache-2.0
"""Each supported Kubernetes accepts every manifest, also for values that use everything."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from tests.chart.chart import NEWEST_KUBERNETES, ChartError, Manifest, lint, render
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
        ({"common": {"replica": 3}}, "replica"),
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
        # Names from before a pool's values were split into those of its halves.
        ({"pools": {"default": {"workers": 3}}}, "workers: Invalid type. Expected: object"),
        ({"pools": {"default": {"allowSessionFunctions": False}}}, "allowSessionFunctions"),
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
        ({"pools": {"default": {"settings": {"queueLimit": 3}}}}, "settings"),
        ({"poolDefaults": {"resources": {}}}, "resources"),
        ({"poolDefaults": {"workers": 2}}, "workers: Invalid type. Expected: object"),
        ({"poolDefaults": {"front": None}}, "front is required"),
        ({"pools": {"default": {"tls": {"mode": "off"}}}}, "tls"),
        # Values of the other half.
        ({"pools": {"default": {"workers": {"tls": {"mode": "off"}}}}}, "tls"),
        ({"pools": {"default": {"front": {"volumes": []}}}}, "volumes"),
        ({"monitoring": {"intervalSeconds": 0}}, "intervalSeconds"),
        ({"fullnameOverride": "x" * 40, "pools": {"of-the-whole-house": {}}}, "of-the-whole-house-cluster is longer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_refused_by_naming_it(mistake: dict[str, Any], named: str) -> None:
    with pytest.raises(ChartError, match=named):
        render(mistake)


def test_a_broken_manifest_would_be_found() -> None:
    (deployment, *_) = render().all("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["probes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST_KUBERNETES, strict=True)
