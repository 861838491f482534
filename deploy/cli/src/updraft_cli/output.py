# SPDX-License-Identifier: Apache-2.0
"""How results are printed: columns for people, JSON for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

# What strangers have written, in names and messages, must not speak to the terminal.
_CONTROL_CHARACTERS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?")


def print_json(value: Any) -> None:
    """A JSON value and a line's end."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_line(text: str = "") -> None:
    """A line."""
    sys.stdout.write(text.translate(_CONTROL_CHARACTERS) + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their contents; only the last one may be of any length."""
    table = [tuple(heading.upper() for heading in headings), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    for row in table:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
