# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of metrics and pages serves a few connections, and no client can block it."""

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from updraft.service import web
from updraft.service.addresses import TcpAddress
from updraft.service.observers import Observers
from updraft.service.web import WebPage, serve_pages

# Reached only if something hangs.
HANG_SECONDS = 60.0


@pytest.fixture
def url() -> Iterator[str]:
    registry = CollectorRegistry()
    Gauge("updraft_answer", "What is asked for.", registry=registry).set(42)
    pages = {"/page": lambda: WebPage("text/plain", b"a page", (("X-Own", "1"),))}
    bound, stop = serve_pages(TcpAddress("127.0.0.1", 0), registry, pages, Observers(None, None))
    yield f"http://{bound}"
    stop()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=HANG_SECONDS) as answer:
        return bytes(answer.read())


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), HANG_SECONDS)


def threads() -> int:
    return threading.active_count()


def test_metrics_and_pages_are_served(url: str) -> None:
    assert b"updraft_answer 42.0" in get(f"{url}/metrics")
    with urllib.request.urlopen(f"{url}/page") as answer:
        assert answer.read() == b"a page"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Own"] == "1"


def test_a_flood_of_connections_takes_a_bounded_number_of_threads(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_OLD_SECONDS", HANG_SECONDS)
    get(f"{url}/page")
    before = threads()
    with contextlib.ExitStack() as flood:
        for _ in range(100):
            flood.enter_context(connected(url))
            assert threads() <= before + web._MOST_CONNECTIONS


def test_who_holds_connections_makes_room(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_OLD_SECONDS", 0.0)
    with contextlib.ExitStack() as flood:
        for _ in range(3 * web._MOST_CONNECTIONS):
            flood.enter_context(connected(url)).sendall(b"GET /page HTTP/1.1\r\nX: ")
        assert get(f"{url}/page") == b"a page"


def test_young_connections_are_not_driven_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_OLD_SECONDS", HANG_SECONDS)
    with contextlib.ExitStack() as held:
        first = held.enter_context(connected(url))
        for _ in range(2 * web._MOST_CONNECTIONS):
            held.enter_context(connected(url))
        first.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        assert first.makefile("rb").read().endswith(b"a page")


def test_a_silent_connection_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.05)
    with connected(url) as silent:
        assert silent.recv(1) == b""
