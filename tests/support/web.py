# SPDX-License-Identifier: Apache-2.0
"""Page as a browser without JavaScript shows it: its text, its table rows, and the URLs it refers to."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser

_WITHOUT_END = {"meta", "link", "input", "br", "line", "polyline", "rect"}
_TIMEOUT_SECONDS = 60


@dataclass
class Page(HTMLParser):
    """Well-formed page; malformed HTML raises AssertionError."""

    html: str
    rows: list[list[str]] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    elements: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(self.html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        """Visible text, with single spaces."""
        return " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in _WITHOUT_END:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _WITHOUT_END:
            assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("style", "script"):
            return
        self._texts.append(data)
        if "tr" in self._open and self.rows[-1]:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()


def fetched(url: str, *, token: str = "") -> tuple[str, dict[str, str]]:
    """Return body and headers; raise urllib.error.HTTPError."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        return answer.read().decode(), dict(answer.headers)
