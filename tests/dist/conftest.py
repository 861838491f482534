# SPDX-License-Identifier: Apache-2.0
"""The folder that `make dist` filled, and a new environment with what is in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packages.distribution import environment, uv
from tests.support.paths import REPOSITORY

_TIMEOUT_SECONDS = 300

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def dist() -> Path:
    folder = Path(os.environ.get("UPDRAFT_DIST", REPOSITORY / "dist"))
    assert (folder / "SHA256SUMS").exists(), f"{folder} has no release: run `make dist`"
    return folder


@pytest.fixture(scope="session")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `updraft-spark[connect]`: ours from `dist` and no index, the rest as the lock file has it."""
    directory = tmp_path_factory.mktemp("installed")
    made = environment(directory, "updraft-workspace", groups=["connect"])
    # Its cache would give what an earlier `make dist` has put there under the same name.
    ours = ("--no-cache", "--no-index", "--find-links", dist)
    command = ("pip", "install", "--python", made, *ours, "updraft-spark[connect]")
    done = uv(*command, cwd=directory)
    assert done.returncode == 0, done.stderr
    checked = uv("pip", "check", "--python", made, cwd=directory)
    assert checked.returncode == 0, checked.stderr
    return made


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Runs a program of the environment in an empty directory; it fails the test unless it ends with `status`."""

    def run(program: str, *arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UPDRAFT"))}
        ran = subprocess.run(
            [installed / "bin" / program, *arguments],
            cwd=tmp_path,
            env={**settings, "PATH": f"{installed}/bin:{settings['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran

    return run
