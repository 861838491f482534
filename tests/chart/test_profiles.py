# SPDX-License-Identifier: Apache-2.0
"""Resources that a release requests: the numbers in the documents match the manifests."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from kubernetes.utils import parse_quantity

from tests.chart.chart import CHART, render
from tests.support.paths import REPOSITORY

_SMALL: dict[str, Any] = yaml.safe_load((CHART / "values-small.yaml").read_text())
_GIB = 1024**3
_PAGES = [CHART / "README.md", REPOSITORY / "docs/guides/install.md"]


def _asked(values: dict[str, Any], of: str) -> dict[str, float]:
    """Return the `requests` or `limits` of all pods of the release together, in CPUs and GiB."""
    total = {"cpu": 0.0, "memory": 0.0, "ephemeral-storage": 0.0}
    for deployment in render(values).all("Deployment"):
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            for resource, quantity in container["resources"][of].items():
                total[resource] += float(parse_quantity(quantity)) * deployment["spec"]["replicas"]
    return {name: value if name == "cpu" else value / _GIB for name, value in total.items()}


def _said(page: str, release: str) -> dict[str, float]:
    """Return the numbers of a release in a page's table."""
    (row,) = re.findall(rf"^\| {release} \| ([\d.]+) \| ([\d.]+) GiB \| ([\d.]+) GiB \|", page, re.MULTILINE)
    return dict(zip(("cpu", "memory", "ephemeral-storage"), map(float, row), strict=True))


@pytest.mark.parametrize(("release", "values"), [("default", {}), (r"`values-small\.yaml`", _SMALL)])
@pytest.mark.parametrize(
    "page", [CHART / "README.md", REPOSITORY / "docs/guides/install.md"], ids=lambda page: page.stem
)
def test_the_documents_say_what_a_release_requests(page: Any, release: str, values: dict[str, Any]) -> None:
    assert _said(page.read_text(), release) == pytest.approx(_asked(values, "requests"), rel=0.06)


def test_the_small_profile_fits_a_laptop_beside_spark() -> None:
    assert _asked(_SMALL, "requests")["cpu"] <= 0.5
    assert _asked(_SMALL, "requests")["memory"] <= 1
    assert _asked(_SMALL, "limits")["memory"] <= 4


def test_the_small_profile_is_a_release_with_everything_in_it() -> None:
    release = render(_SMALL)
    assert [deployment["spec"]["replicas"] for deployment in release.all("Deployment")] == [1, 1]
    assert len(release.all("Pod")) == 2
    # One pod of each may still be evicted; otherwise a node could never be drained.
    assert {budget["spec"]["maxUnavailable"] for budget in release.all("PodDisruptionBudget")} == {1}
