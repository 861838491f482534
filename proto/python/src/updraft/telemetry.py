# SPDX-License-Identifier: Apache-2.0
"""Logs and metrics: structured lines on stderr, Prometheus over HTTP."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from structlog.typing import EventDict, Processor

from updraft.addresses import TcpAddress

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


def serve_metrics(address: TcpAddress, registry: CollectorRegistry) -> tuple[TcpAddress, Callable[[], None]]:
    """Serve /metrics on a thread; returns the address really bound and what ends it. Raises OSError."""
    server, thread = start_http_server(address.port, address.host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return TcpAddress(address.host, server.server_port), stop
