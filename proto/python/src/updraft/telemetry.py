# SPDX-License-Identifier: Apache-2.0
"""Logs and metrics: structured lines on stderr, Prometheus over HTTP, and pages of a service's own beside it."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from structlog.typing import EventDict, Processor

from updraft.addresses import TcpAddress

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# The control characters of ASCII and Latin-1, and what else Unicode lets end a line or turn its direction.
_CONTROL_CHARACTERS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: repr(chr(code))[1:-1] for code in _CONTROL_CHARACTERS}

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(*, log_format: str, level: str, process: str) -> None:
    """Log to stderr as JSON lines or for a console; every line names the `process`.

    What is bound with `structlog.contextvars` (the task's identity) is part of every line of that exchange.
    """
    renderers: list[Processor] = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    if log_format == "console":
        renderers = [_without_control_characters, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def _without_control_characters(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """What a client or a function wrote must neither start a line of its own nor speak to the terminal.

    JSON escapes such characters itself.
    """
    return {key: value.translate(_ESCAPES) if isinstance(value, str) else value for key, value in event.items()}


@dataclass(frozen=True, slots=True)
class WebPage:
    """What a browser gets."""

    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


WebPages = Mapping[str, Callable[[], WebPage]]
"""Pages by their paths; each is made anew, on a thread of its own, for whoever asks."""

_PAGE_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)


def serve_metrics(
    address: TcpAddress, registry: CollectorRegistry, pages: WebPages
) -> tuple[TcpAddress, Callable[[], None]]:
    """Serve /metrics and `pages` on threads; returns the address really bound and what ends it. Raises OSError."""
    server, thread = start_http_server(address.port, address.host, registry)
    server.set_app(_pages_before(server.get_app(), pages))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return TcpAddress(address.host, server.server_port), stop


def _pages_before(metrics: "WSGIApplication | None", pages: WebPages) -> "WSGIApplication":
    assert metrics is not None

    def answer(environment: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        page = pages.get(environment["PATH_INFO"])
        if page is None or environment["REQUEST_METHOD"] != "GET":
            return metrics(environment, start_response)
        shown = page()
        start_response("200 OK", [("Content-Type", shown.content_type), *_PAGE_HEADERS, *shown.headers])
        return [shown.body]

    return answer
