# SPDX-License-Identifier: Apache-2.0
"""Spans that OpenTelemetry records and exports by OTLP over gRPC.

`updraft.service.tracing` imports this module if tracing is on. Ended spans wait in a bounded queue for the exporter's
thread; a full queue drops the oldest span. So a collector can neither delay an exchange nor make it fail.
"""

import logging
import os
import socket
import time
from asyncio import CancelledError
from importlib.metadata import version
from types import TracebackType
from typing import Self

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from updraft.errors import UpdraftError, UserError
from updraft.service.spans import NO_ATTRIBUTES, TRACE_HEADER, Attributes, Span, Tracer

_MAX_WAITING_SPANS = 2048
_MAX_SPANS_PER_EXPORT = 1024
_EXPORT_INTERVAL_MILLISECONDS = 1000
# With these limits, an unresponsive collector delays the end of the service by less than ten seconds.
_EXPORT_TIMEOUT_SECONDS = 3.0
_NANOSECONDS = 1_000_000_000
# Distribution whose version appears in spans. PyPI's `updraft` is another project.
_DISTRIBUTION = "updraft-core"

_PROPAGATOR = TraceContextTextMapPropagator()


class RecordingTracer(Tracer):
    """Tracer that exports to one collector. OpenTelemetry's own variables (OTEL_*) set everything else."""

    def __init__(self, endpoint: str, *, service: str) -> None:
        _log_in_our_words()
        process = {
            "service.name": service,
            "service.version": version(_DISTRIBUTION),
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
        self._provider = TracerProvider(resource=Resource.create(process), shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(endpoint, timeout=_EXPORT_TIMEOUT_SECONDS),
                max_queue_size=_MAX_WAITING_SPANS,
                schedule_delay_millis=_EXPORT_INTERVAL_MILLISECONDS,
                max_export_batch_size=_MAX_SPANS_PER_EXPORT,
            )
        )
        self._tracer = self._provider.get_tracer("updraft", version(_DISTRIBUTION))

    def exchange(self, name: str, traceparent: str) -> Span:
        """Start the span of an exchange, as `Tracer` does; ignore an invalid `traceparent`."""
        parent = _PROPAGATOR.extract({TRACE_HEADER: traceparent})
        return RecordedSpan(self._tracer, self._tracer.start_span(name, parent, trace.SpanKind.SERVER))

    def close(self) -> None:
        """See `Tracer`."""
        self._provider.shutdown()


class RecordedSpan(Span):
    """Span that OpenTelemetry records."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._failed = False

    @property
    def traceparent(self) -> str:
        """See `Span`."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context())
        return carrier[TRACE_HEADER]

    def child(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> "RecordedSpan":
        """See `Span`."""
        return RecordedSpan(self._tracer, self._tracer.start_span(name, self._context(), attributes=attributes))

    def took(self, name: str, seconds: float) -> None:
        """See `Span`."""
        ended = time.time_ns()
        began = ended - int(seconds * _NANOSECONDS)
        self._tracer.start_span(name, self._context(), start_time=began).end(ended)

    def describe(self, attributes: Attributes) -> None:
        """See `Span`."""
        for name, value in attributes.items():
            self._span.set_attribute(name if "." in name else f"updraft.{name}", value)

    def fail(self, error: BaseException) -> None:
        """See `Span`."""
        self._failed = True
        self._span.set_attribute("error.type", type(error).__name__)
        # Messages of other exceptions may contain data that a collector should not see.
        message = error.first_line() if isinstance(error, UpdraftError) else None
        self._span.set_status(trace.StatusCode.ERROR, message)
        if isinstance(error, UserError):
            self._span.set_attribute("exception.type", error.exception_class)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, CancelledError):
            if not self._failed:
                self.describe({"outcome": "cancelled"})
        elif error is not None:
            self.fail(error)
        self._span.end()

    def _context(self) -> Context:
        return trace.set_span_in_context(self._span, Context())


class _StructuredHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage())


def _log_in_our_words() -> None:
    """Send OpenTelemetry's log records to our own log."""
    logger = logging.getLogger("opentelemetry")
    if not logger.handlers:
        logger.addHandler(_StructuredHandler(logging.WARNING))
        logger.propagate = False
