# SPDX-License-Identifier: Apache-2.0
"""Tracing of a service: no effect while it is off, and no blocking by the collector while it is on."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from asyncio import CancelledError
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.support.collector import Collector

from updraft.errors import UserError
from updraft.service import recorded_spans
from updraft.service.service_settings import ServiceSettings
from updraft.service.spans import UNRECORDED, Tracer
from updraft.service.tracing import start_tracing

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_MORE_THAN_MAY_WAIT = 3000


@pytest.fixture(scope="module")
def tracer() -> Iterator[Tracer]:
    """Yield a tracer whose collector refuses everything at once."""
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        tracer = start_tracing(f"http://127.0.0.1:{port}", service="updraft-pool")
        yield tracer
        tracer.close()
        server.stop(None).wait()


def test_off_nothing_of_opentelemetry_is_loaded() -> None:
    code = (
        "import sys, updraft_server.front.process, updraft_writer.writer;"
        "from updraft.service.tracing import start_tracing;"
        "start_tracing('', service='updraft-pool').exchange('any', '').child('other');"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_off_every_span_is_the_same_object() -> None:
    tracer = start_tracing("", service="updraft-pool")
    with tracer.exchange("outer", _PARENT) as span, span.child("inner") as inner:
        assert span is inner is UNRECORDED
        assert inner.traceparent == ""


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10_000])
def test_what_is_no_trace_context_begins_a_new_trace(tracer: Tracer, header: str) -> None:
    with tracer.exchange("outer", header) as span:
        assert span.traceparent.startswith("00-")
        assert span.traceparent[:35] != header[:35]


def test_spans_continue_the_clients_trace(tracer: Tracer) -> None:
    with tracer.exchange("outer", _PARENT) as span, span.child("inner") as inner:
        named = [text.split("-") for text in (_PARENT, span.traceparent, inner.traceparent)]
    assert len({trace for _, trace, _, _ in named}) == 1
    assert len({span for _, _, span, _ in named}) == 3


def test_an_error_passes_through_its_span(tracer: Tracer) -> None:
    with pytest.raises(UserError, match="as it was"), tracer.exchange("outer", ""):
        raise UserError("as it was", exception_class="ValueError")


def test_a_call_that_its_client_cancels_over_an_error_has_failed() -> None:
    with Collector() as collector:
        tracer = start_tracing(collector.endpoint, service="updraft-pool")
        told, cancelled = tracer.exchange("told", ""), tracer.exchange("cancelled", "")
        told.fail(UserError("sent in-band", exception_class="ValueError"))
        for span in (told, cancelled):
            with pytest.raises(CancelledError), span:
                raise CancelledError
        tracer.close()
        spans = {span.name: span for span in collector.until("both spans", lambda so_far: len(so_far) == 2)}
    assert (spans["told"].failed, spans["told"].attributes) == (
        True,
        {"error.type": "UserError", "exception.type": "ValueError"},
    )
    assert (spans["cancelled"].failed, spans["cancelled"].attributes) == (False, {"updraft.outcome": "cancelled"})


def test_a_collector_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_spans, "_EXPORT_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracer = start_tracing(f"http://127.0.0.1:{silent.getsockname()[1]}", service="updraft-pool")
        started = time.monotonic()
        for _ in range(_MORE_THAN_MAY_WAIT):
            with tracer.exchange("outer", _PARENT):
                pass
        tracer.close()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    "address", ["collector:4317", "grpc://collector:4317", "http://", "http://collector/v1/traces"]
)
def test_what_is_no_collector_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a collector"):
        ServiceSettings(trace_endpoint=address)
