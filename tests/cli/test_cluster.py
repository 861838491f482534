# SPDX-License-Identifier: Apache-2.0
"""Failures of an API server, and pods that have ended; tests/kube tests a real server."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config

from updraft_cli import cluster
from updraft_cli.cluster import Cluster, ClusterError, MissingError


class ApiServer(ThreadingHTTPServer):
    """Server that answers with these statuses in order, then repeats the last one with the JSON of `answer`."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.statuses = list(statuses)
        self.answer: Any = {}


class _Answer(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        content = json.dumps(self.server.answer).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer(404) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        address = f"http://127.0.0.1:{server.server_port}"
        path = tmp_path / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setattr(cluster, "_POLL_SECONDS", 0.0)
        yield server
        server.shutdown()
        serving.join()


def test_an_api_server_that_fails_for_a_while_does_not_end_a_pod(api_server: ApiServer) -> None:
    api_server.statuses = [500, 429, 404]
    said = list(Cluster("", "", 5.0).watch_end("pod-1", 30.0))
    assert len(said) == 2
    assert all(isinstance(line, str) and "cannot find pod-1" in line for line in said)


def test_a_pod_that_is_not_there_is_told_from_one_that_cannot_be_asked_for(api_server: ApiServer) -> None:
    with pytest.raises(MissingError, match="cannot find pod-1"):
        Cluster("", "", 5.0).pod("pod-1")
    api_server.statuses = [403]
    with pytest.raises(ClusterError, match="cannot find pod-1") as refused:
        Cluster("", "", 5.0).pod("pod-1")
    assert not isinstance(refused.value, MissingError)


def _pod(name: str, phase: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "air", "app.kubernetes.io/component": "pool-default"}
    ports = [{"name": "metrics", "containerPort": 9825}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "front", "ports": ports}]},
        "status": {"phase": phase},
    }


def test_pods_that_have_ended_are_left_out(api_server: ApiServer) -> None:
    api_server.statuses = [200]
    pods = [_pod("evicted", "Failed"), _pod("shut-down", "Succeeded"), _pod("new", "Pending"), _pod("old", "Running")]
    api_server.answer = {"items": pods}
    assert [pod.name for pod in Cluster("", "", 5.0).pods("air")] == ["new", "old"]


def test_an_api_server_that_has_gone_is_a_reason_and_no_traceback(api_server: ApiServer) -> None:
    api_server.statuses = [200]
    api_server.answer = {"items": [_pod("old", "Running")]}
    found = Cluster("", "", 5.0)
    (pod,) = found.pods("air")
    api_server.shutdown()
    api_server.server_close()
    assert str(found.status(pod)).startswith("does not answer (")
    assert str(found.certificate(dataclasses.replace(pod, certificate_secret="tls"))).startswith(
        "the API server does not answer ("
    )
