# SPDX-License-Identifier: Apache-2.0
"""Pool as a notebook shows it."""

from __future__ import annotations

from typing import Any

from updraft.spark.pool_html import ended_html, pool_html

_IDENTITY = {"function": "<b>f</b>"}
_STATUS: dict[str, Any] = {
    "state": "ready",
    "uptime_seconds": 150,
    "workers": {
        "configured": 2,
        "busy": 1,
        "living": [{"memory_bytes": 3 << 20}, {"memory_bytes": None}],
    },
    "queue": {"waiting": 4},
    "reload_fault": "it does not import",
    "functions": [{"name": f"f{number}", "version": "1", "fault": ""} for number in range(7)],
    "exchanges": [{"identity": _IDENTITY, "phase": "running", "seconds": 1.6, "batches": 3}],
    "errors": [{"at": "noon", "identity": {}, "message": "<i>why</i>"}],
}


def test_the_table_says_what_the_status_says_and_lets_nothing_through_as_html() -> None:
    shown = pool_html(_STATUS, "http://me:a&b@host/status")
    for part in (
        "ready, 2 min",
        "1 of 2 busy, 4 calls waiting",
        "3 MiB in 2 processes",
        "f4 1<br>and 2 more",
        "it does not import",
        "&lt;b&gt;f&lt;/b&gt;: running for 2 s, 3 batches",
        "noon unknown function: &lt;i&gt;why&lt;/i&gt;",
        'href="http://me:a&amp;b@host/status"',
    ):
        assert part in shown


def test_a_pool_that_has_ended_shows_the_end_of_its_log() -> None:
    shown = ended_html("\n".join(f"<line {number}>" for number in range(9)))
    assert "pool.restart()" in shown
    assert "&lt;line 8&gt;" in shown
    assert "line 3" not in shown
