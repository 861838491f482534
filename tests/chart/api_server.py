# SPDX-License-Identifier: Apache-2.0
"""Part of Kubernetes' API that Helm asks before it renders, and a record of the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.chart.chart import NEWEST_KUBERNETES

SECRET = "/api/v1/namespaces/data/secrets/token"
"""The path of the one object that it has."""
_ANSWERS = {
    "/version": {"major": "1", "minor": "37", "gitVersion": f"v{NEWEST_KUBERNETES}.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}],
    },
    SECRET: {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "data": {}},
}


@contextmanager
def api_server(config: Path) -> Iterator[list[str]]:
    """Serve an API that has a single Secret; write its kubeconfig, and yield the list of requested paths."""
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
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
        known = {"clusters": [here], "contexts": [context], "users": [{"name": "me", "user": {}}]}
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **known}))
        yield asked
        server.shutdown()
