# SPDX-License-Identifier: Apache-2.0
"""Recipe of `make check` over the stages of a small Makefile: a failure stops no other stage and hides none."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

_MAKEFILE = f"""
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
REPORTS := reports
CONNECTOR := connector
BUILD := setup
FIRST := lint chart
SECOND := unit needs-setup e2e
THIRD := e2e-older
include {REPOSITORY}/.ci/check.mk

REPORT = mkdir -p $(REPORTS) && echo '<testsuite tests="3" failures="$(1)" errors="0" skipped="1"/>' >$(REPORTS)/$@.xml
.PHONY: lint setup unit needs-setup chart e2e e2e-older

lint:
	@$(BEGIN)
	@$(LINT)

setup: installed
	@$(BEGIN)

installed:
	@$(SETUP)
	@touch $@

needs-setup: installed
	@$(call BEGIN,needs-setup)
	@$(call REPORT,0)

unit:
	@$(call BEGIN,unit)
	@$(UNIT)

chart e2e e2e-older:
	@$(call BEGIN,$@)
	@$(call REPORT,0)
"""
_PASSING = {"LINT": "true", "SETUP": "true", "UNIT": "$(call REPORT,0)"}


@dataclass(frozen=True)
class Check:
    """Output and exit status of a run."""

    status: int
    lines: list[str]

    @property
    def last_line(self) -> str:
        return self.lines[-1]

    def said_of(self, name: str) -> str:
        """Return the summary's text about a suite or a stage; empty if it has none."""
        start = next(index for index, line in enumerate(self.lines) if " passed " in line)
        return "; ".join(line.removeprefix(name).strip() for line in self.lines[start:] if line.startswith(f"{name} "))


def _check(directory: Path, target: str = "run-check", **stages: str) -> Check:
    variables = "".join(f"{name} = {recipe}\n" for name, recipe in {**_PASSING, **stages}.items())
    (directory / "Makefile").write_text(variables + _MAKEFILE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    ran = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Check(ran.returncode, ran.stdout.splitlines())


def test_a_check_of_stages_that_pass_ends_with_their_count(tmp_path: Path) -> None:
    check = _check(tmp_path)
    assert (check.status, check.last_line) == (0, "8 passed, 0 failed, 4 skipped")
    assert not check.said_of("lint")


def test_a_lint_that_fails_hides_no_stage_and_is_named_last(tmp_path: Path) -> None:
    check = _check(tmp_path, LINT="echo a line is too long; false")
    assert check.said_of("lint") == "failed (see above)"
    assert "a line is too long" in check.lines
    assert (check.status != 0, check.last_line) == (True, "8 passed, 1 failed, 4 skipped")


def test_tests_that_fail_count_once_and_name_their_stage(tmp_path: Path) -> None:
    check = _check(tmp_path, UNIT="$(call REPORT,1); false")
    assert check.said_of("unit") == "1 passed   1 failed   1 skipped; failed: see its tests"
    assert check.said_of("e2e").startswith("2 passed")
    assert (check.status != 0, check.last_line) == (True, "7 passed, 1 failed, 4 skipped")


def test_a_suite_says_how_long_its_tests_took(tmp_path: Path) -> None:
    check = _check(tmp_path, UNIT="""$(call REPORT,0); sed -i 's/tests=/time="61.7" tests=/' $(REPORTS)/unit.xml""")
    assert check.said_of("unit") == "2 passed   0 failed   1 skipped     62 s"


def test_what_uses_the_build_waits_for_it(tmp_path: Path) -> None:
    check = _check(tmp_path, SETUP="sleep 0.5; echo built", UNIT="echo used; $(call REPORT,0)")
    assert check.lines.index("built") < check.lines.index("used")


@pytest.mark.parametrize("ending", ["kill -SEGV $$$$", "true"])
def test_a_suite_that_leaves_no_report_does_not_look_like_success(tmp_path: Path, ending: str) -> None:
    check = _check(tmp_path, UNIT=ending)
    assert check.said_of("unit") == "failed: it left no report (see above)"
    assert (check.status != 0, check.last_line) == (True, "6 passed, 1 failed, 3 skipped")


def test_a_report_that_was_cut_off_does_not_hide_the_others(tmp_path: Path) -> None:
    check = _check(tmp_path, UNIT="$(call REPORT,0); truncate --size=20 $(REPORTS)/unit.xml")
    assert check.said_of("unit") == "its report unit.xml was cut off"
    assert (check.status != 0, check.last_line) == (True, "6 passed, 1 failed, 3 skipped")


def test_a_setup_that_fails_stops_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    check = _check(tmp_path, SETUP="echo no network; false")
    for stage in ("setup", "needs-setup"):
        assert check.said_of(stage) == "did not run: what it needs was not built, or it was stopped (see above)"
    assert check.said_of("e2e").startswith("2 passed")
    assert (check.status != 0, check.last_line) == (True, "6 passed, 2 failed, 3 skipped")


def test_a_check_counts_nothing_of_the_one_before(tmp_path: Path) -> None:
    _check(tmp_path)
    check = _check(tmp_path, UNIT="false")
    assert check.last_line == "6 passed, 1 failed, 3 skipped"


def test_a_stage_that_is_run_again_leaves_nothing_of_its_last_run(tmp_path: Path) -> None:
    _check(tmp_path)
    failing = {"UNIT": "kill -SEGV $$$$", "LINT": "false"}
    for stage in ("unit", "lint"):
        assert _check(tmp_path, stage, **failing).status != 0
    check = _check(tmp_path, "print-summary", **failing)
    assert check.said_of("unit") == "failed: it left no report (see above)"
    assert (check.status != 0, check.last_line) == (True, "6 passed, 2 failed, 3 skipped")


def test_a_variable_ci_of_the_environment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    check = _check(tmp_path, LINT="echo CI is $$CI")
    assert "CI is true" in check.lines
    assert check.status == 0


def test_older_sparks_are_checked_although_the_newest_failed(tmp_path: Path) -> None:
    check = _check(tmp_path, "run-check-all", UNIT="$(call REPORT,2); false")
    assert check.said_of("e2e-older").startswith("2 passed")
    assert (check.status != 0, check.last_line) == (True, "8 passed, 2 failed, 5 skipped")


def test_the_last_line_of_ci_is_the_count_although_make_has_failed(tmp_path: Path) -> None:
    for program, script in {
        "make": 'echo "make: *** [$*] Error 1" >&2; [ "$1" = check ] || echo "1 passed, 1 failed, 0 skipped"; exit 2',
        "apt-get": "exit 1",
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [REPOSITORY / ".ci/run"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (2, "1 passed, 1 failed, 0 skipped")
