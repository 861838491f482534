# SPDX-License-Identifier: Apache-2.0
"""Printing of results: columns for people, JSON for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

# Names and messages that come from services must not control the terminal.
_CONTROL_CHARACTERS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_line(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(text.translate(_CONTROL_CHARACTERS) + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns that are as wide as their contents."""
    table = [tuple(heading.upper() for heading in headings), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    for row in table:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
