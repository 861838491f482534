# SPDX-License-Identifier: Apache-2.0
"""Status page: one report as HTML. It is complete without JavaScript; with JavaScript it refreshes itself.

The page loads nothing from elsewhere, and its content security policy lets a browser run only the page's own script,
because names and messages come from untrusted clients.
"""

import base64
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from updraft.service.web import WebPage, WebPages
from updraft_server.front.status.report import KEPT_SAMPLES, Report

if TYPE_CHECKING:
    from jinja2 import Template

_CHART_WIDTH, _CHART_HEIGHT = 300.0, 48.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def status_pages(report: Callable[[], Report]) -> WebPages:
    """Return the pages that are served next to /metrics, each made from the report at the time of the request."""
    return {
        "/": lambda: html_page(report()),
        "/status": lambda: html_page(report()),
        "/status.json": lambda: json_page(report()),
    }


def html_page(report: Report) -> WebPage:
    """Return the HTML page of a report."""
    template, policy = _template_and_policy()
    return WebPage(
        "text/html; charset=utf-8",
        template.render(report=report, kept=KEPT_SAMPLES).encode(),
        (("Content-Security-Policy", policy),),
    )


def json_page(report: Report) -> WebPage:
    """Return a report as JSON, for programs."""
    return WebPage("application/json", report.to_json())


@functools.cache
def _template_and_policy() -> "tuple[Template, str]":
    # Import on the first request for the page, because a front that replaces a killed front must start quickly.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("updraft_server.front.status")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(points=points, duration=duration, size=size, amount=amount)
    style, script = (loader.get_source(environment, name)[0] for name in ("style.css", "refresh.js"))
    environment.globals.update(style=style, script=script)
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    )
    return environment.get_template("page.html"), policy


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def points(values: Sequence[float], kept: int) -> str:
    """Return the points of an SVG polyline, with zero at the bottom and the last value at the right edge.

    `kept` values fill the whole width. Fewer values start further to the right.
    """
    top = max(values, default=0) or 1
    first = kept - len(values)
    step = _CHART_WIDTH / max(kept - 1, 1)
    return " ".join(
        f"{(first + index) * step:.1f},{(1 - value / top) * (_CHART_HEIGHT - 4) + 2:.1f}"
        for index, value in enumerate(values)
    )


def duration(seconds: float) -> str:
    """Format seconds for people."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds == int(seconds) else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(count: int) -> str:
    """Format a number of bytes for people."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def amount(value: float) -> str:
    """Format a count or a rate, with a decimal only for fractions below 100."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
