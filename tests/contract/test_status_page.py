# SPDX-License-Identifier: Apache-2.0
"""Status page of a pool and its metrics: complete without JavaScript, with the same numbers as JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pyarrow as pa
import pytest

from tests.support.flight import echo_command, exchange, whole_request
from tests.support.pool import LocalPool
from tests.support.waiting import until
from tests.support.web import Page, fetched
from updraft.v1 import exchange_pb2

_WITHIN_SECONDS = 60
_HOSTILE = "</script><script>alert(1)</script>"


def _report(pool: LocalPool) -> dict[str, Any]:
    return dict(json.loads(pool.page("/status.json")[0]))


def _page(pool: LocalPool) -> Page:
    return Page(pool.page("/status")[0])


def _call(pool: LocalPool, command: exchange_pb2.ExchangeCommand) -> None:
    batch = pa.RecordBatch.from_pydict({"_0": list(range(500))})
    exchange(pool.tcp_address, whole_request(command, batch.schema, [batch]))


def test_the_json_says_what_the_pool_is_and_does(pool: LocalPool) -> None:
    _call(pool, echo_command())
    rows = until(
        "the exchange is counted",
        lambda: max(_report(pool)["history"]["rows_per_second"], default=0),
        timeout_seconds=_WITHIN_SECONDS,
    )
    report = _report(pool)
    assert rows > 0
    assert report["state"] == "ready"
    assert report["health"]["arrow.flight.protocol.FlightService"]
    assert report["workers"]["configured"] == 2
    assert [function["name"] for function in report["functions"]] == ["echo"]
    assert report["versions"]["python"].startswith("3.")


def test_the_page_shows_the_same_without_javascript(pool: LocalPool) -> None:
    page, report = _page(pool), _report(pool)
    assert report["versions"]["server"] in page.text
    assert "2 configured" in page.text
    assert page.rows[-1][:2] == ["echo", "1"]
    assert page.elements.count("polyline") == 4


def test_the_page_loads_nothing_from_elsewhere(pool: LocalPool) -> None:
    body, headers = pool.page("/status")
    assert Page(body).references == ["data:,", "status.json", "metrics"]
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"


def test_what_strangers_name_is_text(pool: LocalPool) -> None:
    _call(pool, echo_command(name=_HOSTILE))
    until(
        "the failure is shown",
        lambda: any(_HOSTILE in error["message"] for error in _report(pool)["errors"]),
        timeout_seconds=_WITHIN_SECONDS,
    )
    page = _page(pool)
    assert page.elements.count("script") == 1
    assert _HOSTILE in page.text


def test_metrics_stay_where_they_were(pool: LocalPool) -> None:
    body, _ = pool.page("/metrics")
    assert "updraft_workers" in body


def test_nothing_can_be_posted(pool: LocalPool) -> None:
    known = {"Authorization": f"Bearer {pool.metrics_token}"}
    request = urllib.request.Request(f"http://{pool.metrics_address}/status", data=b"x", headers=known, method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=60)


@pytest.mark.parametrize("page", ["/", "/status", "/status.json", "/metrics", "/anything"])
def test_who_asks_from_the_machine_of_functions_needs_the_token(pool: LocalPool, page: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        fetched(f"http://{pool.metrics_address}{page}")
    with refused.value:
        assert refused.value.headers["WWW-Authenticate"].startswith("Basic")
        assert b"needs a token" in refused.value.read()
