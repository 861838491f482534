# SPDX-License-Identifier: Apache-2.0
"""Upgrade command of the guide, run by Helm on a release of an older chart that Helm keeps in memory."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.api_server import api_server
from tests.chart.chart import CHART
from tests.support.paths import REPOSITORY

_FLAG = "--reset-then-reuse-values"
_OURS = {
    "common": {"image": {"registry": "registry.test"}},
    "poolDefaults": {"workers": {"sessionFunctions": "unsigned"}},
    "pools": {"etl": {"replicas": 3}},
}
_OLD_DRAIN_SECONDS = 7


def _installed() -> dict[str, Any]:
    """Return a release with our values, of a chart with another default and without the later sections."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    defaults["common"]["drainTimeoutSeconds"] = _OLD_DRAIN_SECONDS
    del defaults["monitoring"]
    chart = {"metadata": {"name": "updraft", "version": "0.0.1", "apiVersion": "v2"}, "values": defaults}
    return {
        "name": "updraft",
        "namespace": "data",
        "version": 1,
        "info": {"status": "deployed"},
        "config": _OURS,
        "chart": chart,
    }


def _command() -> list[str]:
    """Return the guide's upgrade command."""
    text = (REPOSITORY / "docs/guides/upgrade.md").read_text()
    (line,) = re.findall(r"^    (helm upgrade .*)$", text, re.MULTILINE)
    return shlex.split(line)


def _upgraded(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    store, config = directory / "releases", directory / "config"
    store.write_text(json.dumps([_installed()]))
    environment = {**os.environ, "HELM_DRIVER": "memory", "HELM_MEMORY_DRIVER_DATA": str(store)}
    program, *arguments = command
    with api_server(config):
        return subprocess.run(
            [str(Path(sys.executable).with_name(program)), *arguments, f"--kubeconfig={config}", "--output=json"],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_the_guides_command_keeps_our_values_and_takes_the_new_defaults(tmp_path: Path) -> None:
    ran = _upgraded(_command(), tmp_path)
    assert ran.returncode == 0, ran.stderr
    release = json.loads(ran.stdout)
    assert release["config"] == {**_OURS, "common": {"image": {"registry": "registry.test", "tag": "0.2.0"}}}
    pods = {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in yaml.safe_load_all(release["manifest"])
        if manifest and manifest["kind"] == "Deployment"
    }
    etl = pods["updraft-pool-etl"]
    assert etl["replicas"] == 3
    assert etl["template"]["spec"]["containers"][0]["image"] == "registry.test/updraft-pool:0.2.0"
    drains = {pod["template"]["spec"]["terminationGracePeriodSeconds"] for pod in pods.values()}
    assert min(drains) > _OLD_DRAIN_SECONDS + 60


@pytest.mark.parametrize("flag", ["--reuse-values", "--reset-values"])
def test_the_other_flags_do_what_the_guide_says_of_them(flag: str, tmp_path: Path) -> None:
    ran = _upgraded([flag if word == _FLAG else word for word in _command()], tmp_path)
    assert ran.returncode != 0
    missing = "monitoring is required" if flag == "--reuse-values" else "common.image.registry"
    assert missing in ran.stderr
