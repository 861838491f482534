# SPDX-License-Identifier: Apache-2.0
"""Local service with OSV's API, whose vulnerabilities a test sets."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Osv(ThreadingHTTPServer):
    """Service with vulnerabilities by package URL with version; one a page if `pages` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.pages = False
        self.status = 200
        self.body: bytes | None = None
        """Sent instead of every answer."""
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Return the service's URL."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Osv

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        found = [entry for entries in self.server.known.values() for entry in entries if entry["id"] == name]
        self._send(found[0])

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self._send({"results": [self._result(query) for query in queries]})

    def _result(self, query: dict[str, Any]) -> dict[str, Any]:
        purl = query["package"]["purl"]
        self.server.asked.append(purl)
        found = [{"id": entry["id"]} for entry in self.server.known.get(purl, ())]
        if not self.server.pages:
            return {"vulns": found} if found else {}
        begin = int(query.get("page_token", 0))
        page = {"vulns": found[begin : begin + 1]}
        return page if begin + 1 >= len(found) else {**page, "next_page_token": str(begin + 1)}

    def _send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode() if self.server.body is None else self.server.body
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""
