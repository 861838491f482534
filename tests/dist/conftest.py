# SPDX-License-Identifier: Apache-2.0
"""Folder that `make dist` filled, and new environments installed from it by the guides' commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.dist.guides import commands, python_commands
from tests.support.paths import REPOSITORY

_TIMEOUT_SECONDS = 900

Run = Callable[..., subprocess.CompletedProcess[str]]
NO_NETWORK = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
"""Variables with which no program reaches another machine by HTTP."""


@pytest.fixture(scope="session")
def dist() -> Path:
    folder = Path(os.environ.get("UPDRAFT_DIST", REPOSITORY / "dist")).absolute()
    assert (folder / "SHA256SUMS").exists(), f"{folder} has no release: run `make dist`"
    return folder


@pytest.fixture(scope="session")
def wheels(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with `dist`, and with `wheels` from an index, as the guide to air-gapped places collects them.

    Their versions are those of the lock file.
    """
    directory = tmp_path_factory.mktemp("fetched")
    (directory / "dist").symlink_to(dist)
    collect, _ = python_commands("platforms")
    typed(collect, new_environment(directory / "environment"), directory, locked(dist))
    return directory


@pytest.fixture(scope="session")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment after the notebook guide's `pip install`, run without an index."""
    directory = tmp_path_factory.mktemp("installed")
    (directory / "dist").symlink_to(wheels / "dist")
    made = new_environment(directory / "environment")
    (install,) = (command for command in commands("notebook") if command.startswith("pip "))
    typed(install, made, directory, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels / "wheels"), **NO_NETWORK})
    typed("pip check", made, directory)
    return made


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Return a function that runs a program of the environment in an empty directory and checks its exit status."""

    def run(program: str, *arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        return _ran([installed / "bin" / program, *arguments], installed, tmp_path, {}, status)

    return run


def locked(dist: Path) -> Mapping[str, str]:
    """Return the variables that make pip take the versions that the release was tested with."""
    return {"PIP_CONSTRAINT": str(dist / "constraints.txt")}


def new_environment(path: Path) -> Path:
    """Return an environment of this Python with pip alone."""
    subprocess.run([sys.executable, "-m", "venv", path], check=True, timeout=_TIMEOUT_SECONDS)
    return path


def typed(command: str, environment: Path, directory: Path, variables: Mapping[str, str] | None = None) -> str:
    """Type a command into a shell in which the environment is active, and return its output."""
    shell = ["bash", "-eu", "-o", "pipefail", "-c", command]
    return _ran(shell, environment, directory, variables or {}, status=0).stdout


def _ran(
    command: Sequence[str | Path], environment: Path, directory: Path, variables: Mapping[str, str], status: int
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UPDRAFT", "VIRTUAL"))}
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**kept, "PATH": f"{environment}/bin:{kept['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert ran.returncode == status, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran
