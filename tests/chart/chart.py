# SPDX-License-Identifier: Apache-2.0
"""Chart as Helm renders it, without a cluster."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import REPOSITORY

CHART = REPOSITORY / "deploy/helm/updraft"
NEWEST_KUBERNETES = "1.37"
_HELM = Path(sys.executable).with_name("helm")
_ANSWERS = Path(__file__).parent / "answers.yaml"
_APIS = ("monitoring.coreos.com/v1", "keda.sh/v1alpha1", "cert-manager.io/v1")

Manifest = dict[str, Any]


class ChartError(Exception):
    """Failure of Helm, with the text that a user reads."""


@dataclass(frozen=True)
class Release:
    """Manifests of one rendering."""

    manifests: tuple[Manifest, ...]

    def all(self, kind: str) -> list[Manifest]:
        """Return the manifests of a kind."""
        return [manifest for manifest in self.manifests if manifest["kind"] == kind]

    def one(self, kind: str, name: str) -> Manifest:
        """Return the manifest of a kind and a name."""
        (found,) = (manifest for manifest in self.all(kind) if manifest["metadata"]["name"] == name)
        return found

    def pod(self, name: str) -> dict[str, Any]:
        """Return the pod of a Deployment."""
        spec: dict[str, Any] = self.one("Deployment", name)["spec"]["template"]["spec"]
        return spec

    def container(self, name: str, called: str = "") -> dict[str, Any]:
        """Return the container with this name in a Deployment's pod; by default the one that serves clients."""
        called = called or ("writer" if name.endswith("-writer") else "front")
        (found,) = (container for container in self.pod(name)["containers"] if container["name"] == called)
        return dict(found)

    def environment(self, name: str, called: str = "") -> dict[str, str]:
        """Return the variables of that container that have literal values."""
        variables = self.container(name, called)["env"]
        return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def render(values: dict[str, Any] | None = None, *, kubernetes: str = NEWEST_KUBERNETES) -> Release:
    """Render release `air` in namespace `data`; raise ChartError if Helm fails."""
    rendered = _rendered(CHART, yaml.safe_dump(values or {}), kubernetes)
    return Release(tuple(manifest for manifest in _parsed(rendered) if manifest))


def manifests(values: dict[str, Any], *options: str, chart: Path = CHART) -> str:
    """Return what `helm template` prints with these options; never cached."""
    return _template(chart, *options, values=yaml.safe_dump(values))


def alert_rules(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rules of the release's alerts."""
    rule = render({"monitoring": {"rules": True}, **(values or {})}).one("PrometheusRule", "air-updraft")
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def lint(values: dict[str, Any] | None = None) -> str:
    """Return the output of `helm lint --strict`; raise ChartError if it fails."""
    return _helm(
        "lint", str(CHART), "--strict", "--kube-version", f"{NEWEST_KUBERNETES}.0", values=yaml.safe_dump(values)
    )


def notes(values: dict[str, Any] | None = None) -> str:
    """Return the notes that a user reads after the installation."""
    with tempfile.TemporaryDirectory() as directory:
        chart = Path(directory) / "updraft"
        shutil.copytree(CHART, chart)
        # Helm renders NOTES.txt only with a cluster.
        (chart / "templates/notes.yaml").write_text('kind: Notes\ntext: {{ include "updraft.notes" . | quote }}\n')
        rendered = _rendered(chart, yaml.safe_dump(values or {}), NEWEST_KUBERNETES)
    (text,) = (manifest["text"] for manifest in _parsed(rendered) if manifest["kind"] == "Notes")
    return str(text)


def job_template(said: str) -> Manifest:
    """Return the pod template for jobs that notes print."""
    _, _, text = said.partition("\njob.yaml, a pod template")
    return dict(yaml.safe_load(text.partition(":\n\n")[2].partition("\n\n")[0]))


def mounted(spec: dict[str, Any]) -> set[str]:
    """Return the token files under the mounts of a job's only container, all of optional Secrets."""
    (container,) = spec["containers"]
    secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"]}
    assert all(secret["optional"] for secret in secrets.values())
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert all(path == f"/etc/updraft/{secrets[name]['secretName']}" for name, path in places.items())
    return {f"{path}/token" for path in places.values()}


def _parsed(manifests: str) -> Iterator[Any]:
    # Nine times faster than yaml.SafeLoader.
    return yaml.load_all(manifests, yaml.CSafeLoader)


@functools.cache
def _rendered(chart: Path, values: str, kubernetes: str) -> str:
    apis = (f"--api-versions={api}" for api in _APIS)
    return _template(chart, "--kube-version", f"{kubernetes}.0", *apis, values=values)


def _template(chart: Path, *options: str, values: str) -> str:
    return _helm("template", "air", str(chart), "--namespace", "data", *options, values=values)


def _helm(*arguments: str, values: str) -> str:
    # Required answers come first, so that the values can override them.
    command = [str(_HELM), *arguments, "--values", str(_ANSWERS), "--values", "-"]
    ran = subprocess.run(command, input=values, capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise ChartError(ran.stderr + ran.stdout)
    return ran.stdout
