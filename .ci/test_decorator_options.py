# SPDX-License-Identifier: Apache-2.0
"""The guide's tables of the decorator's options match the code; `make lint` notices a stale table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

from updraft.functions.options import FunctionOptions, Options, TableOptions

sys.path.insert(0, str(REPOSITORY / ".ci"))

import decorator_options

_OPTION = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def test_the_tables_have_the_options_of_each_decorator() -> None:
    _, shared, of_functions, of_tables = decorator_options.tables().split("| option |")
    common = Options.__annotations__.keys()
    assert _OPTION.findall(shared) == list(common)
    assert set(_OPTION.findall(of_functions)) == FunctionOptions.__annotations__.keys() - common
    assert set(_OPTION.findall(of_tables)) == TableOptions.__annotations__.keys() - common


def test_values_are_those_of_the_type() -> None:
    assert '| `on_error` | `"raise"` or `"null"` or `"struct"` |' in decorator_options.tables()


def test_the_guide_is_in_step_and_a_stale_table_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["decorator_options.py", "--check"])
    assert decorator_options.main() == 0
    guide = tmp_path / "guide.md"
    text = (REPOSITORY / "docs/guides/registered-functions.md").read_text()
    guide.write_text(text.replace("| `owner` |", "| `possessor` |"))
    monkeypatch.setattr(decorator_options, "_GUIDE", guide)
    assert decorator_options.main() == 1
    monkeypatch.setattr(sys, "argv", ["decorator_options.py"])
    assert decorator_options.main() == 0
    assert guide.read_text() == text
