# SPDX-License-Identifier: Apache-2.0
"""A rendering depends on the values alone: it is the same each time and reads nothing from the cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chart.api_server import SECRET, api_server
from tests.chart.chart import CHART, manifests
from tests.chart.everything import EVERYTHING

_values = pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])


def _with_template(directory: Path, text: str) -> Path:
    """Return a copy of the chart with one more template."""
    chart = directory / "updraft"
    shutil.copytree(CHART, chart)
    (chart / "templates/more.yaml").write_text("kind: More\ntext: " + text + "\n")
    return chart


@_values
def test_an_upgrade_renders_the_bytes_of_the_installation(values: dict[str, Any]) -> None:
    assert manifests(values) == manifests(values, "--is-upgrade")


@_values
def test_a_cluster_is_asked_for_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    options = ("--dry-run=server", f"--kubeconfig={tmp_path / 'config'}")
    with api_server(tmp_path / "config") as asked:
        rendered = manifests(values, *options)
    assert asked == []
    assert rendered == manifests(values)


def test_a_name_made_up_would_be_found(tmp_path: Path) -> None:
    chart = _with_template(tmp_path, "{{ randAlphaNum 20 }}")
    assert manifests({}, chart=chart) != manifests({}, "--is-upgrade", chart=chart)


def test_a_look_at_the_cluster_would_be_found(tmp_path: Path) -> None:
    chart = _with_template(tmp_path, '{{ lookup "v1" "Secret" "data" "token" | toJson | quote }}')
    with api_server(tmp_path / "config") as asked:
        manifests({}, "--dry-run=server", f"--kubeconfig={tmp_path / 'config'}", chart=chart)
    assert SECRET in asked
