# SPDX-License-Identifier: Apache-2.0
"""Commands and Python code in the guides."""

from __future__ import annotations

import re

from tests.support.paths import REPOSITORY

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    ((?:pip|python|spark-submit|updraft) .*)$", re.MULTILINE)


def cells(guide: str) -> list[str]:
    """Return the blocks of Python of a page of docs/guides, as the cells of one notebook."""
    return [code for language, code in _BLOCK.findall(_page(guide)) if language == "python"]


def commands(guide: str) -> list[str]:
    """Return the commands on the page's lines, in order."""
    return _INDENTED.findall(_BLOCK.sub("", _page(guide)))


def python_commands(guide: str) -> list[str]:
    """Return the commands of pip in the page's blocks of bash, in order."""
    blocks = [code for language, code in _BLOCK.findall(_page(guide)) if language == "bash"]
    return [line for block in blocks for line in block.splitlines() if line.startswith("pip ")]


def _page(guide: str) -> str:
    return (REPOSITORY / f"docs/guides/{guide}.md").read_text()
