# SPDX-License-Identifier: Apache-2.0
"""Examples for Argo CD and Flux: their values are valid, and they set nothing that a controller would undo."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.chart.chart import Release, render
from tests.support.paths import REPOSITORY

_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _example(kind: str) -> dict[str, Any]:
    blocks = map(yaml.safe_load, _BLOCK.findall((REPOSITORY / "docs/guides/gitops.md").read_text()))
    (found,) = (block for block in blocks if block["kind"] == kind)
    return dict(found["spec"])


def _values(kind: str) -> dict[str, Any]:
    spec = _example(kind)
    return dict(spec["source"]["helm"]["valuesObject"] if kind == "Application" else spec["values"])


@pytest.mark.parametrize("kind", ["Application", "HelmRelease"])
def test_the_chart_takes_the_values_of_the_example(kind: str) -> None:
    release = render(_values(kind))
    assert release.container("air-updraft-pool-default")["image"].startswith("registry.example/data/updraft-pool:")
    spec = _example(kind)
    path = spec["source"]["path"] if kind == "Application" else spec["chart"]["spec"]["chart"]
    assert (REPOSITORY / path / "Chart.yaml").exists()


def test_argo_cd_leaves_the_number_of_pods_to_the_autoscaler() -> None:
    release: Release = render(_values("Application"))
    assert len(release.all("HorizontalPodAutoscaler")) == 2
    assert ["replicas" in deployment["spec"] for deployment in release.all("Deployment")] == [False, False]
