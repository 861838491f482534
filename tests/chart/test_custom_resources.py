# SPDX-License-Identifier: Apache-2.0
"""Custom resources that the chart makes for other operators are valid by those operators' definitions."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from tests.chart.chart import Manifest, render
from tests.chart.custom_resources import UnknownResourceError, validate

_VALUES: dict[str, Any] = {
    "common": {
        "autoscaling": {"mode": "keda", "waiting": 2},
        "tls": {"mode": "certManager", "clientCertificates": True, "issuerRef": {"name": "ours"}},
    },
    "monitoring": {"podMonitors": True, "rules": True, "labels": {"release": "prometheus"}},
}
_KINDS = ("Certificate", "PodMonitor", "PrometheusRule", "ScaledObject")
_GROUPS = ("monitoring.coreos.com", "keda.sh", "cert-manager.io")


def _first(kind: str) -> Manifest:
    return deepcopy(render(_VALUES).all(kind)[0])


def test_each_operator_accepts_its_resources() -> None:
    custom = [each for each in render(_VALUES).manifests if each["apiVersion"].startswith(_GROUPS)]
    assert {manifest["kind"] for manifest in custom} == set(_KINDS)
    for manifest in custom:
        validate(manifest)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Certificate", ("spec", "issuerRef", "name"), None),
        ("Certificate", ("spec", "dnsName"), ["pool"]),
        ("Certificate", ("spec", "usages"), ["serving"]),
        ("PodMonitor", ("spec", "selector"), None),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "interval"), "often"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "ports"), "metrics"),
        ("PrometheusRule", ("spec", "groups", 0, "name"), None),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "for"), "a while"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "up == 0"),
        ("ScaledObject", ("spec", "scaleTargetRef"), None),
        ("ScaledObject", ("spec", "minReplicas"), 2),
        ("ScaledObject", ("spec", "triggers", 0, "metadata", "value"), 70),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_planted_mistake_is_found(kind: str, path: tuple[str | int, ...], value: Any) -> None:
    manifest = _first(kind)
    place: Any = manifest
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(manifest)


def test_a_resource_without_a_definition_is_an_error() -> None:
    with pytest.raises(UnknownResourceError, match=r"\.ci/crds\.py"):
        validate({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor"})
