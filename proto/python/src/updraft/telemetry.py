# SPDX-License-Identifier: Apache-2.0
"""Logs and metrics: structured lines on stderr, Prometheus over HTTP."""

import logging
import sys
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from updraft.addresses import TcpAddress

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(*, log_format: str, level: str, process: str) -> None:
    """Log to stderr as JSON lines or for a console; every line names the `process`.

    What is bound with `structlog.contextvars` (the task's identity) is part of every line of that exchange.
    """
    renderer = structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer()
    exceptions = [structlog.processors.dict_tracebacks] if log_format == "json" else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *exceptions,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def serve_metrics(address: TcpAddress, registry: CollectorRegistry) -> tuple[TcpAddress, Callable[[], None]]:
    """Serve /metrics on a thread; returns the address really bound and what ends it. Raises OSError."""
    server, thread = start_http_server(address.port, address.host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return TcpAddress(address.host, server.server_port), stop
