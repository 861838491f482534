# SPDX-License-Identifier: Apache-2.0
"""Environment for an application whose JVMs run in a mount namespace without a Python."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_HOME = Path(__file__).parent / "java_without_python"
JAVA = _HOME / "bin/java"
"""Executable that starts a JVM in a mount namespace without a Python."""


def pythons() -> Sequence[Path]:
    """Return every Python interpreter of this machine that is on the PATH or below this process's prefix."""
    directories = {
        Path(sys.base_prefix, "bin"),
        *map(Path, os.get_exec_path()),
        Path("/usr/bin"),
        Path("/usr/local/bin"),
    }
    found = (path.resolve() for directory in directories for path in directory.glob("python*"))
    return sorted({path for path in found if path.is_file() and os.access(path, os.X_OK)})


def environment(command: Path | None = None) -> dict[str, str]:
    """Return the environment variables, or none if this user may not mount, so that JVMs see the machine's Pythons.

    If `command` is given, it runs in place of the JVM.
    """
    variables = {"JAVA_HOME": str(_HOME), "UPDRAFT_PYTHONS": " ".join(map(str, pythons()))}
    return {**variables, "UPDRAFT_JAVA": str(command or _java())} if _may_mount() else {}


def _java() -> Path:
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    assert found is not None, "there is no JVM"
    return Path(found).resolve()


@functools.cache
def _may_mount() -> bool:
    trial = {**os.environ, "UPDRAFT_PYTHONS": "", "UPDRAFT_JAVA": "true"}
    return subprocess.run([JAVA], env=trial, capture_output=True, check=False).returncode == 0
