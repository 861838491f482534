# SPDX-License-Identifier: Apache-2.0
"""A render follows from the values alone: it is the same each time, and reads nothing from the cluster."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.chart.chart import CHART, NEWEST_KUBERNETES, manifests
from tests.chart.everything import EVERYTHING

_values = pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
_SECRET = "/api/v1/namespaces/data/secrets/token"
_ANSWERS = {
    "/version": {"major": "1", "minor": "37", "gitVersion": f"v{NEWEST_KUBERNETES}.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}],
    },
    _SECRET: {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "data": {}},
}


@contextmanager
def _cluster(config: Path) -> Iterator[list[str]]:
    """A cluster with one Secret, of which `config` is the kubeconfig; the paths that it has been asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(_ANSWERS.get(path, missing)).encode()
            self.send_response(200 if path in _ANSWERS else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
        known = {"clusters": [here], "contexts": [context], "users": [{"name": "me", "user": {}}]}
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **known}))
        yield asked
        server.shutdown()


def _with_template(directory: Path, text: str) -> Path:
    """The chart and one more template."""
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
    with _cluster(tmp_path / "config") as asked:
        rendered = manifests(values, *options)
    assert asked == []
    assert rendered == manifests(values)


def test_a_name_made_up_would_be_found(tmp_path: Path) -> None:
    chart = _with_template(tmp_path, "{{ randAlphaNum 20 }}")
    assert manifests({}, chart=chart) != manifests({}, "--is-upgrade", chart=chart)


def test_a_look_at_the_cluster_would_be_found(tmp_path: Path) -> None:
    chart = _with_template(tmp_path, '{{ lookup "v1" "Secret" "data" "token" | toJson | quote }}')
    with _cluster(tmp_path / "config") as asked:
        manifests({}, "--dry-run=server", f"--kubeconfig={tmp_path / 'config'}", chart=chart)
    assert _SECRET in asked
