# SPDX-License-Identifier: Apache-2.0
"""Workspace as a user installs it, from the lock: without the checkout, for a Python that every user may run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import BUILD, REPOSITORY
from tests.support.spark import SPARK_VERSION


def installation() -> Path:
    """Return an environment that may be mounted or moved elsewhere; skip the test if no Python is suitable."""
    found = BUILD / "systemd/updraft"
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(found)}
    uv = os.environ.get("UV", "uv")
    spark = "spark" + "".join(map(str, SPARK_VERSION))
    commands = [
        [uv, "venv", "--quiet", "--clear", "--relocatable", "--python", str(public_python()), str(found)],
        [uv, "sync", "--quiet", "--locked", "--no-editable", "--no-default-groups", "--group", spark],
    ]
    for command in commands:
        ran = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    return found


def public_python() -> Path:
    """Return a Python of this version that users without a home directory can start; skip the test without one."""
    name = f"python3.{sys.version_info.minor}"
    found = [Path(sys.base_prefix) / "bin" / name, *(Path(folder) / name for folder in ("/usr/bin", "/usr/local/bin"))]
    public = [path for path in found if path.exists() and path.resolve().parts[1] not in ("home", "root")]
    if not public:
        pytest.skip(f"needs a {name} outside of home directories, such as Debian's")
    return public[0]
