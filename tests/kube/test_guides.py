# SPDX-License-Identifier: Apache-2.0
"""The guides' kubectl lines, run on an installed release with its names instead of the pages' own."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.kube.cluster import NAME, Release
from tests.kube.namespace import NAMESPACE, Namespace
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

_SECONDS = 60
# Matches a line of its own, or code within a sentence.
_KUBECTL = re.compile(r"^    (kubectl .*)$|`(kubectl [^`]+)`|# (kubectl get .*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def with_kubectl() -> None:
    # With STRICT=1, as nightly runs it, this is a failure.
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")


def _line(guide: str, part: str, **names: str) -> str:
    """Return the guide's line with this part, for this release; `names` replace its placeholders."""
    text = (REPOSITORY / f"docs/guides/{guide}.md").read_text()
    found = {"".join(groups) for groups in _KUBECTL.findall(text)}
    (line,) = (each for each in found if part in each)
    line = line.replace("--namespace data", f"--namespace {NAMESPACE}").replace("updraft-pool", f"{NAME}-updraft-pool")
    for placeholder, name in names.items():
        assert placeholder in line
        line = line.replace(placeholder, name)
    return line


def _typed(line: str, directory: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        ["bash", "-eu", "-c", line],
        cwd=directory,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def test_a_pods_page_is_shown_to_who_has_the_token_of_its_file(release: Release, tmp_path: Path) -> None:
    pod = release.pods("pool-default")[0].metadata.name
    ready = next(line for line in release.log("pool-default", "front", pod=pod).splitlines() if "pool is ready" in line)
    token = _typed(_line("install", "-- cat FILE", POD=pod, FILE=json.loads(ready)["metrics_token_file"])).strip()
    # Another process may use the page's port on this machine.
    forward = _line("install", "port-forward", POD=pod).replace(" 9825", " :9825")
    with (
        (tmp_path / "forwarded").open("w+") as said,
        subprocess.Popen(["bash", "-c", f"exec {forward}"], stdout=said) as forwarding,
    ):
        try:
            port = until("the port is forwarded", lambda: _forwarded(tmp_path / "forwarded"), timeout_seconds=_SECONDS)
            password = base64.b64encode(f"anybody:{token}".encode()).decode()
            page = Request(f"http://127.0.0.1:{port}/status", headers={"Authorization": f"Basic {password}"})
            with urlopen(page, timeout=_SECONDS) as answer:
                assert "<html" in answer.read().decode()
        finally:
            forwarding.terminate()


def _forwarded(path: Path) -> str | None:
    found = re.search(r"127\.0\.0\.1:(\d+) ->", path.read_text())
    return found[1] if found else None


def test_a_secret_of_tokens_is_made_from_two_files(namespace: Namespace, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\nanother\n")
    (tmp_path / "token").write_text("one")
    _typed(_line("tenants", "create secret generic"), tmp_path)
    assert namespace.secret("team-a-tokens") == {"tokens": "one\nanother\n", "token": "one"}
    namespace.core.delete_namespaced_secret("team-a-tokens", NAMESPACE)


def test_a_token_is_rotated_in_its_secret_and_both_open_the_pool(release: Release, tmp_path: Path) -> None:
    old, new = release.token("pool-default"), "the-next-token-of-the-default-pool"
    _typed(_line("tenants", "patch secret"), variables={"OLD": old, "NEW": new})
    assert release.token("pool-default") == new
    release.sync_volumes("pool-default")
    for name, token in (("new", new), ("old", old)):
        (tmp_path / name).write_text(token)
        opens = functools.partial(_opens, f"grpc://{release.cluster_ip('pool-default')}:8815", tmp_path / name)
        until(f"the {name} token opens the pool", opens, timeout_seconds=2 * _SECONDS)


def _opens(endpoint: str, token: Path) -> bool:
    command = [
        str(Path(sys.executable).with_name("updraft")),
        "doctor",
        "--endpoint",
        endpoint,
        "--token-file",
        str(token),
    ]
    return subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False).returncode == 0


def test_a_clusters_keys_and_issuer_are_read(release: Release) -> None:
    assert json.loads(_typed(_line("tenants", "/openid/v1/jwks")))["keys"]
    assert json.loads(_typed(_line("tenants", "openid-configuration")))["issuer"].startswith("https://")


def test_the_binding_that_publishes_the_keys_is_one_that_the_cluster_takes(release: Release) -> None:
    """A dry run, because a real binding would be visible to the whole cluster."""
    told = _typed(_line("tenants", "create clusterrolebinding") + " --dry-run=server")
    assert "clusterrolebinding.rbac.authorization.k8s.io/updraft-keys created" in told


def test_why_a_token_is_missing_is_looked_for(release: Release) -> None:
    for command in ("describe pod", "logs --selector"):
        _typed(f"{_line('tenants', command)} --namespace {NAMESPACE}")


def test_what_helm_test_leaves_is_deleted(release: Release, namespace: Namespace) -> None:
    left = {"metadata": {"name": "left", "labels": {"app.kubernetes.io/component": "test"}}}
    pod = release.pods("writer")[0].spec.containers[0]
    limited = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "test", "image": pod.image, "command": ["true"], "securityContext": limited}
    restricted = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "securityContext": restricted, "containers": [container]}
    namespace.core.create_namespaced_pod(NAMESPACE, {**left, "spec": spec})
    _typed(_line("install", "delete pod"))
    assert not namespace.pods("app.kubernetes.io/component=test")
