# SPDX-License-Identifier: Apache-2.0
"""Workflows on GitHub call the make targets that a laptop runs, with no more rights than they need.

`make lint-workflows` also checks the workflows with actionlint, a Go program.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.programs.fuzz.__main__ import TARGETS as FUZZ_TARGETS
from tests.support.paths import REPOSITORY

_GITHUB = REPOSITORY / ".github"
_WORKFLOWS = sorted((_GITHUB / "workflows").glob("*.yml"))
_ACTIONS = sorted((_GITHUB / "actions").glob("*/action.yml"))
_PINNED = re.compile(r"^\S+@[0-9a-f]{40}$")
_PINNED_LINE = re.compile(r"uses: (?:\./|\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)")
_MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")
_AS_ROOT = 'sudo --preserve-env env "PATH=$PATH" '
"""Start of a line that runs make as root, with the job's variables and PATH."""
_NIGHTLY = {
    *("attacks", "audit", "bench-signed", "bench-tenants", "check-all", "docs-links", "e2e-kube", "faults", "fuzz"),
    *("simulate", "soak", "test-browser", "test-comet", "test-dashboards"),
    *("test-images", "test-large-rows", "test-rapids", "test-smoke", "test-speculation", "test-storages", "test-torch"),
}
_NIGHTLY_AS_ROOT = {"attacks", "e2e-kube", "faults", "test-platforms"}
_RELEASE = {
    *("check-tag", "dist", "test-dist", "images", "test-images", "push-images", "join-images", "draft-release"),
    "publish-site",
}
_NEEDED_FIRST = {
    "e2e-kube": {"tools-images", "tools-dashboards", "images", "image-executors", "kube-tools", "push-images"},
    "test-browser": {"tools-browser"},
    "test-dashboards": {"tools-dashboards"},
    "test-images": {"tools-images", "images"},
    "test-storages": {"tools-storages"},
}
"""Targets that a job has to run first. Without them the target fails or skips tests."""
_SCHEMAS = {
    "github-workflows": _WORKFLOWS,
    "github-actions": _ACTIONS,
    "github-issue-forms": [path for path in _GITHUB.glob("ISSUE_TEMPLATE/*.yml") if path.stem != "config"],
    "github-issue-config": [_GITHUB / "ISSUE_TEMPLATE/config.yml"],
    "dependabot": [_GITHUB / "dependabot.yml"],
}


def _of_make() -> tuple[set[str], set[str]]:
    """Return targets of make, and variables that a user may set."""
    makefile = (REPOSITORY / "Makefile").read_text()
    described = re.findall(r"^([a-z0-9-]+):.*(?:##|#\+) ", makefile, re.MULTILINE)
    return set(described), set(re.findall(r"^#= ([A-Z_]+) ", makefile, re.MULTILINE))


def _combinations(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the combinations of values in a job's matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, map(str, values), strict=True))


def _lines(job: dict[str, Any], combination: dict[str, str]) -> Iterator[str]:
    """Yield each line that a job runs with these values of its matrix."""
    for step in job["steps"]:
        for line in step.get("run", "").splitlines():
            yield _MATRIX.sub(lambda match: combination[match[1]], line)


def _commands(job: dict[str, Any]) -> Iterator[str]:
    """Return each line that a job runs, for each combination of its matrix."""
    return itertools.chain.from_iterable(_lines(job, combination) for combination in _combinations(job))


def _wrong_with_command(line: str) -> str | None:
    targets, variables = _of_make()
    if "${{" in line:
        return f"{line}: what others decide goes through the environment, not into a command line"
    program, *words = shlex.split(line.removeprefix(_AS_ROOT))
    assigned = {word.partition("=")[0] for word in words if "=" in word}
    unknown = ({word for word in words if "=" not in word} - targets) | (assigned - variables)
    return f"{line}: not a command of make that exists" if program != "make" or unknown or not words else None


def _wrong_with_step(step: dict[str, Any]) -> list[str]:
    uses = step.get("uses", "")
    wrong = []
    if uses and not uses.startswith("./") and not _PINNED.match(uses):
        wrong.append(f"{uses}: not pinned by a commit")
    if uses.startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
        wrong.append(f"{uses}: leaves the token where every later step finds it")
    return wrong


def _wrong(workflow: dict[str, Any]) -> list[str]:
    """Return every violation of our rules in a workflow."""
    wrong = (
        [] if workflow.get("permissions") == {"contents": "read"} else ["permissions: more than reading for all jobs"]
    )
    wrong += [] if "concurrency" in workflow else ["concurrency: not said"]
    for name, job in workflow["jobs"].items():
        wrong += [] if "timeout-minutes" in job else [f"{name}: no timeout"]
        wrong += [found for step in job["steps"] for found in _wrong_with_step(step)]
        wrong += [found for line in _commands(job) if (found := _wrong_with_command(line))]
        environment = {*job.get("env", {}), *(key for step in job["steps"] for key in step.get("env", {}))}
        wrong += [f"{name}: make has no variable {key}" for key in environment - _of_make()[1] - {"GH_TOKEN"}]
    return wrong


def _jobs(name: str) -> list[list[str]]:
    """Return a list of lines for each job of a workflow and each combination of its matrix."""
    jobs = yaml.safe_load((_GITHUB / f"workflows/{name}.yml").read_text())["jobs"]
    return [list(_lines(job, combination)) for job in jobs.values() for combination in _combinations(job)]


def _targets(lines: list[str]) -> list[str]:
    """Return the targets that these lines make, in order."""
    return [word for line in lines for word in shlex.split(line.removeprefix(_AS_ROOT))[1:] if "=" not in word]


def _run_by(name: str) -> set[str]:
    return {target for lines in _jobs(name) for target in _targets(lines)}


def _run_as_root_by(name: str) -> set[str]:
    return {
        target for lines in _jobs(name) for target in _targets([line for line in lines if line.startswith(_AS_ROOT)])
    }


def _missing(lines: list[str]) -> dict[str, set[str]]:
    """Return the targets that a job makes too early, with the targets it should have made before them."""
    made = _targets(lines)
    needed = {target: _NEEDED_FIRST.get(target, set()) - set(made[: made.index(target)]) for target in made}
    return {target: missing for target, missing in needed.items() if missing}


@pytest.mark.parametrize("path", _WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_keeps_our_rules(path: Path) -> None:
    assert _wrong(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize("path", [*_WORKFLOWS, *_ACTIONS], ids=lambda path: path.parent.name + "/" + path.name)
def test_an_action_is_pinned_and_its_version_is_said(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines() if re.search(r"\buses:", line)]
    assert [line for line in lines if not _PINNED_LINE.search(line)] == []


def test_what_each_workflow_is_for_is_run() -> None:
    assert {"check", "docs-site"} <= _run_by("check")
    assert _NIGHTLY - _run_by("nightly") == set()
    assert _NIGHTLY_AS_ROOT - _run_as_root_by("nightly") == set()
    assert _RELEASE - _run_by("release") == set()


@pytest.mark.parametrize("name", [path.stem for path in _WORKFLOWS])
def test_what_a_target_needs_is_there_before_it_runs(name: str) -> None:
    assert [missing for lines in _jobs(name) if (missing := _missing(lines))] == []


def test_a_target_that_lacks_something_is_found() -> None:
    tried = ["make tools-images", "make test-images", "make images"]
    assert _missing(tried) == {"test-images": {"images"}}


@pytest.mark.parametrize(("user", "within"), [(0, False), (1001, True)])
def test_who_has_built_images_can_mount_them(tmp_path: Path, user: int, within: bool) -> None:
    """Images of an ordinary user are in that user's storage, which only a user namespace mounts."""
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "id").chmod(0o755)
    command = ["make", "--dry-run", "--no-print-directory", "test-images"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    printed = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    (line,) = (line for line in printed.splitlines() if "-m pytest" in line)
    assert line.startswith("buildah unshare ") is within


def test_nothing_is_skipped_on_the_nightly_cluster() -> None:
    jobs = yaml.safe_load((_GITHUB / "workflows/nightly.yml").read_text())["jobs"]
    (step,) = (step for step in jobs["kube"]["steps"] if "e2e-kube" in step.get("run", ""))
    assert step["env"]["STRICT"]


def test_every_nightly_fuzz_target_has_its_time() -> None:
    campaign = yaml.safe_load((_GITHUB / "workflows/nightly.yml").read_text())["jobs"]["campaign"]
    seconds = float(campaign["env"]["FUZZ"].partition("--seconds ")[2].split()[0])
    # The setup gets 20 minutes, and the last input of each target a minute.
    assert len(FUZZ_TARGETS) * (seconds + 60) < (campaign["timeout-minutes"] - 20) * 60


def test_both_soaks_run_each_night() -> None:
    jobs = yaml.safe_load((_GITHUB / "workflows/nightly.yml").read_text())["jobs"].values()
    soaks = [job["env"]["SOAK"] for job in jobs if "soak" in _targets([*_commands(job)])]
    assert ["--rolling" in options for options in soaks] == [False, True]


@pytest.mark.parametrize("target", ["attacks", "faults"])
def test_no_attack_and_no_fault_is_skipped_each_night(target: str) -> None:
    job = yaml.safe_load((_GITHUB / "workflows/nightly.yml").read_text())["jobs"]["campaign-as-root"]
    assert target in job["strategy"]["matrix"]["target"]
    assert job["env"]["STRICT"] == "${{ matrix.target != 'test-platforms' && '1' || '' }}"


@pytest.mark.parametrize("schema", _SCHEMAS)
def test_github_reads_the_file(schema: str) -> None:
    """Use the schemas that check-jsonschema carries, so the test needs no network."""
    files = [str(path) for path in _SCHEMAS[schema]]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"run": "pip install tox"}, "not a command of make"),
        ({"run": "make chekc"}, "not a command of make"),
        ({"run": "make check\nmake"}, "not a command of make"),
        ({"run": "make check SPRAK=4.0"}, "not a command of make"),
        ({"run": "sudo make check"}, "not a command of make"),
        ({"run": _AS_ROOT + "apt-get install cowsay"}, "not a command of make"),
        ({"run": "make check-tag TAG=${{ github.head_ref }}"}, "through the environment"),
        ({"run": "make check", "env": {"SPRAK": "4.0"}}, "no variable SPRAK"),
        ({"uses": "actions/setup-go@v7"}, "not pinned"),
        ({"uses": f"actions/checkout@{'0' * 40}"}, "leaves the token"),
    ],
)
def test_a_step_that_breaks_a_rule_is_found(step: dict[str, Any], problem: str) -> None:
    job = {"timeout-minutes": 1, "steps": [{"run": "make check"}, step]}
    rights = {"permissions": {"contents": "read"}, "concurrency": "one"}
    found = _wrong({**rights, "jobs": {"job": job}})
    assert len(found) == 1
    assert problem in found[0]


def test_a_workflow_without_limits_is_found() -> None:
    assert len(_wrong({"permissions": "write-all", "jobs": {"job": {"steps": []}}})) == 3


def test_hooks_before_a_commit_run_what_make_setup_installs() -> None:
    for repository in yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            program, *arguments = shlex.split(hook["entry"])
            if program == "make":
                assert set(arguments) - {"--silent"} <= _of_make()[0]
            else:
                assert (REPOSITORY / program).exists(), program
