# SPDX-License-Identifier: Apache-2.0
"""HTTP pages of a service: Prometheus metrics at /metrics, and its own pages."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from updraft.service.addresses import TcpAddress
from updraft.service.observers import Observers, is_own_address

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Maximum number of connections from this machine, where functions run. The same number of connections may come from
# other machines, so that neither side can keep the other side out.
_MOST_CONNECTIONS = 16
# At the limit, a new connection replaces the oldest connection if the oldest one is older than this.
_OLD_SECONDS = 2.0
# A connection ends if it is silent for this long.
_SILENCE_SECONDS = 10.0

_PAGE_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """Response to a browser."""

    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


WebPages = Mapping[str, Callable[[], WebPage]]
"""Pages by path; each request renders its page again, on its own thread."""


def serve_pages(
    address: TcpAddress, registry: CollectorRegistry, pages: WebPages, observers: Observers
) -> tuple[TcpAddress, Callable[[], None]]:
    """Serve /metrics and `pages` on threads; return the bound address and a function to stop. Raise OSError."""
    server = _BoundedServer(address)
    server.set_app(_admitting(observers, _pages_before(make_wsgi_app(registry), pages)))
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return TcpAddress(address.host, server.server_port), stop


class _BoundedServer(ThreadingMixIn, WSGIServer):
    """HTTP server with a bounded number of connections; each has its own thread and serves one request."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: TcpAddress) -> None:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, place = infos[0]
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[bool, float]] = {}
        """Open connections, oldest first, each with whether it comes from this machine and when it began."""
        super().__init__((str(place[0]), int(place[1])), _Handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether the connection may be served; at the limit, close an old connection to make room."""
        is_own, now = is_own_address(client_address[0]), time.monotonic()
        with self._lock:
            alike = [(other, since) for other, (own, since) in self._open.items() if own is is_own]
            if len(alike) >= _MOST_CONNECTIONS:
                oldest, since = alike[0]
                if now - since < _OLD_SECONDS:
                    return False
                del self._open[oldest]
                _shut(oldest)
            self._open[request] = is_own, now
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, however its request ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client left, or its connection was closed to make room."""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECONDS

    def log_message(self, *_line: Any) -> None:
        """Log nothing."""


def _admitting(observers: Observers, application: "WSGIApplication") -> "WSGIApplication":
    def answer(environment: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        refusal = observers.refusal(environment["REMOTE_ADDR"], environment.get("HTTP_AUTHORIZATION", ""))
        if not refusal:
            return application(environment, start_response)
        body = f"{refusal}; a browser takes it as the password of any user\n".encode()
        challenge = ("WWW-Authenticate", 'Basic realm="updraft", charset="UTF-8"')
        start_response("401 Unauthorized", [("Content-Type", "text/plain; charset=utf-8"), challenge, *_PAGE_HEADERS])
        return [body]

    return answer


def _pages_before(metrics: "WSGIApplication", pages: WebPages) -> "WSGIApplication":
    def answer(environment: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        page = pages.get(environment["PATH_INFO"])
        if page is None or environment["REQUEST_METHOD"] != "GET":
            return metrics(environment, start_response)
        shown = page()
        start_response("200 OK", [("Content-Type", shown.content_type), *_PAGE_HEADERS, *shown.headers])
        return [shown.body]

    return answer
