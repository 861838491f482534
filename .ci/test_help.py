# SPDX-License-Identifier: Apache-2.0
"""`make help` fits one screen, `make help-all` leaves nothing out: no target, and no variable that a user may set."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from tests.support.paths import REPOSITORY

_LINES, _COLUMNS = 30, 90
_LISTED = re.compile(r"^  (\S+)  +\S", re.MULTILINE)
_TARGETS = re.compile(r"^\.PHONY: (.*)$", re.MULTILINE)
_ASSIGNED = re.compile(r"^(?:export )?([A-Z][A-Z0-9_]*) *(?:=|:=|\?=|\+=)|^[a-z./ -]+: ([A-Z_]+) =", re.MULTILINE)
_OVERRIDABLE = re.compile(r"^(?:export )?([A-Z][A-Z0-9_]*) *\?=", re.MULTILINE)
_USED = re.compile(r"(?<!\$)\$\(([A-Z][A-Z0-9_]*)\)")
_OF_MAKE = {"CURDIR", "MAKE", "MAKEFILE_LIST", "PATH"}
# Targets that only other targets run: parts of stages, whose names are patterns, and targets of check.mk.
_INTERNAL = re.compile(r"^(?:run-|print-)|-on-")


def _printed(target: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", target]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def _settable(makefile: str) -> set[str]:
    """Return variables that a user may set: with a default, or read by the file and never assigned."""
    text = re.sub(r"^#.*$", "", makefile, flags=re.MULTILINE)
    assigned = {name for names in _ASSIGNED.findall(text) for name in names}
    return set(_OVERRIDABLE.findall(text)) | (set(_USED.findall(text)) - assigned - _OF_MAKE)


@pytest.fixture(scope="module")
def makefile() -> str:
    """Return the Makefile with the files that it includes."""
    return "\n".join((REPOSITORY / name).read_text() for name in ("Makefile", ".ci/check.mk"))


def test_the_everyday_targets_fit_one_screen() -> None:
    lines = _printed("help").splitlines()
    assert len(lines) <= _LINES
    assert [line for line in lines if len(line) > _COLUMNS] == []
    assert {"demo", "pool", "writer", "check", "setup"} <= set(_LISTED.findall("\n".join(lines)))


def test_make_alone_prints_the_same() -> None:
    assert _printed("--silent") == _printed("help")


def test_every_target_is_listed(makefile: str) -> None:
    declared = {name for names in _TARGETS.findall(makefile) for name in names.split()}
    described = set(re.findall(r"^([a-z0-9-]+):.*(?:##|#\+) ", makefile, re.MULTILINE))
    listed = set(_LISTED.findall(_printed("help-all").partition("\nVariables")[0]))
    assert listed == described
    assert {name for name in declared if not _INTERNAL.search(name)} <= listed


def test_every_variable_that_a_user_may_set_is_listed(makefile: str) -> None:
    assert set(_LISTED.findall(_printed("help-all").partition("\nVariables")[2])) == _settable(makefile)


def test_a_variable_without_a_description_would_be_found(makefile: str) -> None:
    assert _settable(makefile + "\nspeed: ## Run\n\trun $(SPEED) $(CURDIR)\nLIMIT ?= 3\n") - _settable(makefile) == {
        "SPEED",
        "LIMIT",
    }
