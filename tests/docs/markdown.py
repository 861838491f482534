# SPDX-License-Identifier: Apache-2.0
"""Markdown page with its links and the anchors of its headings."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.paths import REPOSITORY

_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_MAKE = re.compile(r"`make ([a-z0-9-]+)[^`]*`")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """Markdown file."""

    path: Path

    @cached_property
    def text(self) -> str:
        """Return the page without its blocks of code."""
        return _FENCED.sub("", self.path.read_text())

    @property
    def relative_links(self) -> list[str]:
        """Return targets of links and images inside the repository."""
        return [target for target in _LINK.findall(self.text) if not _ELSEWHERE.match(target)]

    @property
    def other_sites(self) -> list[str]:
        """Return targets of links that lead out of the repository."""
        return [target for target in _LINK.findall(self.text) if _ELSEWHERE.match(target)]

    @cached_property
    def anchors(self) -> set[str]:
        """Return the anchors that GitHub makes from this page's headings."""
        return {_slug(heading) for heading in _HEADING.findall(self.text)}

    @property
    def make_targets(self) -> list[str]:
        """Return the targets of make that the page names."""
        return _MAKE.findall(self.text)

    def section(self, heading: str) -> str:
        """Return the text under a heading of the second level."""
        return re.split(rf"^## {re.escape(heading)}\s*$", self.text, flags=re.MULTILINE)[1].split("\n## ")[0]

    def problem(self, link: str) -> str | None:
        """Return the problem with a relative link, or None."""
        place, _, anchor = link.partition("#")
        target = self.path.parent / place if place else self.path
        if not target.exists():
            return f"{link}: {target} is not there"
        if anchor and anchor not in Page(target).anchors:
            return f"{link}: {target.name} has no heading for #{anchor}"
        return None


def repository_pages() -> list[str]:
    """Return the paths of all Markdown files of the repository, relative to its root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listed.stdout.split() if (REPOSITORY / name).exists())


def links_in(text: str) -> list[str]:
    """Return the targets of the links in a part of a page."""
    return _LINK.findall(text)


def _slug(heading: str) -> str:
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
