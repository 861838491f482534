# SPDX-License-Identifier: Apache-2.0
"""State of a pool as a notebook shows it, in HTML without scripts or style sheets."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_MOST_ROWS = 5
_CELL = "text-align:left; vertical-align:top; padding:2px 12px 2px 0"


def pool_html(status: Mapping[str, Any], link: str) -> str:
    """Return a table with the state in a pool's `/status.json`, and a link to its status page."""
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(heading)}</th><td style="{_CELL}">{"<br>".join(map(escape, lines))}</td></tr>'
        for heading, lines in _rows(status)
    )
    address = escape(link, quote=True)
    return (
        f'<table>{rows}</table><a href="{address}" target="_blank" rel="noopener noreferrer">'
        "status page of the pool</a>"
    )


def ended_html(log: str) -> str:
    """Return the HTML for a pool that has ended, with the end of its log."""
    tail = "\n".join(log.splitlines()[-_MOST_ROWS:])
    return f"<b>the pool has ended</b>: <code>pool.restart()</code> starts it again<pre>{escape(tail)}</pre>"


def _rows(status: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    workers, queue = status["workers"], status["queue"]
    yield "pool", [f"{status['state']}, {_duration(status['uptime_seconds'])}"]
    yield "workers", [f"{workers['busy']} of {workers['configured']} busy, {queue['waiting']} calls waiting"]
    living = workers["living"]
    # A process that has just started has not been measured yet.
    memory_bytes = sum(worker["memory_bytes"] or 0 for worker in living)
    yield "memory", [f"{_size(memory_bytes)} in {len(living)} processes"]
    names = [
        f"{function['name']} {function['version']}" + (f": {function['fault']}" if function["fault"] else "")
        for function in status["functions"]
    ]
    yield "functions", _first(names)
    if status.get("reload_fault"):
        yield "refused", [status["reload_fault"]]
    running = [
        f"{_name(exchange['identity'])}: {exchange['phase']} for {exchange['seconds']:.0f} s, "
        f"{exchange['batches']} batches"
        for exchange in status["exchanges"]
    ]
    if running:
        yield "running", _first(running)
    errors = [f"{error['at']} {_name(error['identity'])}: {error['message']}" for error in status["errors"]]
    if errors:
        yield "last errors", _first(errors)


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_ROWS
    return [*lines[:_MOST_ROWS], f"and {more} more"] if more > 0 else lines


def _name(identity: Mapping[str, str]) -> str:
    return identity.get("function", "") or "unknown function"


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if hours < 1 else f"{hours:.1f} h"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"
