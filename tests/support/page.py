# SPDX-License-Identifier: Apache-2.0
"""Page of docs as its reader follows it: commands, cells of Python, edits of files, and the output of each.

Blocks of `console` have commands after `$`, each with its output. Blocks of `python` are the cells of one session; a
block of `text` after a cell is the cell's output or error. A block of `python >> FILE` is appended to the file, and a
block of `text serve` is what `updraft serve` prints meanwhile. `...` stands for omitted output, on a line of its own or
after a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LEFT_OUT = re.compile(r"^\.\.\.$|(?<= )\.\.\.", re.MULTILINE)


class Kind(Enum):
    """Kind of step."""

    COMMAND = auto()
    CELL = auto()
    EDIT = auto()
    SERVED = auto()


@dataclass(frozen=True)
class Step:
    """One action of the reader, and the output that the page shows for it."""

    kind: Kind
    text: str
    shown: str
    file: str = ""


def steps(page: Path) -> list[Step]:
    """Return the steps in the reader's order."""
    blocks = _BLOCK.findall(page.read_text())
    found: list[Step] = []
    for language, information, text in blocks:
        match language, information.split():
            case "console", []:
                found += _commands(text)
            case "python", [">>", file]:
                found.append(Step(Kind.EDIT, text, "", file))
            case "python", []:
                found.append(Step(Kind.CELL, text, ""))
            case "text", ["serve"]:
                found.append(Step(Kind.SERVED, "", text))
            case "text", []:
                cell = found.pop()
                assert (cell.kind, cell.shown) == (Kind.CELL, ""), text
                found.append(Step(Kind.CELL, cell.text, text))
            case _:
                pass
    return found


def block(page: Path, language: str, word: str = "") -> str:
    """Return the only block in this language that contains the word."""
    (found,) = (text for found, _, text in _BLOCK.findall(page.read_text()) if found == language and word in text)
    return str(found)


def shows(shown: str, printed: str) -> bool:
    """Return whether a program printed what the page shows."""
    pattern = ".*?".join(map(re.escape, _LEFT_OUT.split(_comparable(shown))))
    return re.fullmatch(pattern, _comparable(printed), re.DOTALL) is not None


def _comparable(text: str) -> str:
    """Drop everything that differs from run to run: the duration of tests, and spaces at the ends of lines."""
    lines = (line.rstrip() for line in re.sub(r"\b\d+\.\d+s\b", "0.42s", text).strip("\n").splitlines())
    return "\n".join(lines)


def _commands(text: str) -> Iterator[Step]:
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        typed, _, shown = command.partition("\n")
        yield Step(Kind.COMMAND, typed, shown)
