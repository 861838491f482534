# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry collector on this machine: receives spans by OTLP over gRPC and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.trace.v1.trace_pb2 import Status

_WITHIN_SECONDS = 60
_THREADS = 4


@dataclass(frozen=True)
class CollectedSpan:
    """Span as it came over the wire."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    started: int
    ended: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Context manager around a collector; a test sees the traces that began after its own `turn_page`."""

    def __init__(self) -> None:
        self._spans: list[CollectedSpan] = []
        self._past: set[str] = set()
        self._changed = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(_THREADS))
        service.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: messages.ExportTraceServiceRequest, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Keep the spans of a request."""
        with self._changed:
            for resource in request.resource_spans:
                name = _values(resource.resource.attributes)["service.name"]
                spans = [_collected(name, span) for scope in resource.scope_spans for span in scope.spans]
                self._spans += [span for span in spans if span.trace not in self._past]
            self._changed.notify_all()
        return messages.ExportTraceServiceResponse()

    def until(self, what: str, complete: Callable[[Sequence[CollectedSpan]], bool]) -> list[CollectedSpan]:
        """Wait until the spans are `complete`, and return all so far."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: complete(self._spans), timeout=_WITHIN_SECONDS)
            assert arrived, f"{what} within {_WITHIN_SECONDS} s; there are {[span.name for span in self._spans]}"
            return list(self._spans)

    def turn_page(self) -> None:
        """Forget all traces so far, and ignore their later spans."""
        with self._changed:
            self._past |= {span.trace for span in self._spans}
            self._spans.clear()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()


def _collected(service_name: str, span: Any) -> CollectedSpan:
    return CollectedSpan(
        service=service_name,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        started=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
