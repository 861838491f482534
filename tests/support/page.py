# SPDX-License-Identifier: Apache-2.0
"""A page of docs as its reader follows it: commands, cells of Python, edits of files, and what each of them shows.

Blocks of `console` have commands behind `$`, each with what it prints. Blocks of `python` are the cells of one session;
a block of `text` behind one is what it prints, or how it fails. `python >> FILE` belongs to the end of a file, and
`text serve` is what `updraft serve` prints meanwhile. `...` stands for what the page leaves out, on a line of its own
or behind a space.
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
    """What a reader does."""

    COMMAND = auto()
    CELL = auto()
    EDIT = auto()
    SERVED = auto()


@dataclass(frozen=True)
class Step:
    """One thing that a reader does, and what the page shows of it."""

    kind: Kind
    text: str
    shown: str
    file: str = ""


def steps(page: Path) -> list[Step]:
    """In the order in which a reader does them."""
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
    """The block of this language that has the word."""
    (found,) = (text for found, _, text in _BLOCK.findall(page.read_text()) if found == language and word in text)
    return str(found)


def shows(shown: str, printed: str) -> bool:
    """Whether a program printed what the page shows."""
    pattern = ".*?".join(map(re.escape, _LEFT_OUT.split(_comparable(shown))))
    return re.fullmatch(pattern, _comparable(printed), re.DOTALL) is not None


def _comparable(text: str) -> str:
    """Without what differs from run to run: the time that tests took, and spaces at the ends of lines."""
    lines = (line.rstrip() for line in re.sub(r"\b\d+\.\d+s\b", "0.42s", text).strip("\n").splitlines())
    return "\n".join(lines)


def _commands(text: str) -> Iterator[Step]:
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        typed, _, shown = command.partition("\n")
        yield Step(Kind.COMMAND, typed, shown)
