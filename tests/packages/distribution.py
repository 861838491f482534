# SPDX-License-Identifier: Apache-2.0
"""Wheels and source distributions of the workspace, and the metadata of wheels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

from tests.support.paths import BUILD, REPOSITORY

# The folder of each distribution, and of the package that it installs.
FOLDERS = {
    "updraft-core": ("proto/python", "updraft"),
    "updraft-server": ("flight-server", "updraft_server"),
    "updraft-writer": ("gpu-writer", "updraft_writer"),
    "updraft-cli": ("deploy/cli", "updraft_cli"),
}
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
# Reached only if an index does not answer.
_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Wheel:
    """Wheel file."""

    path: Path

    @property
    def metadata(self) -> Message:
        """Return the wheel's METADATA."""
        with zipfile.ZipFile(self.path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(name).decode())

    @property
    def name(self) -> str:
        """Return the distribution's name."""
        return str(self.metadata["Name"])

    @property
    def requirements(self) -> list[str]:
        """Return the names of its requirements, extras included."""
        return [_NAME.findall(requirement)[0] for requirement in self.metadata.get_all("Requires-Dist", [])]

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files that it installs by path, without its own metadata."""
        with zipfile.ZipFile(self.path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def uv(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run uv, as the Makefile found it; the caller looks at the exit status."""
    program = os.environ.get("UV") or shutil.which("uv") or str(BUILD / "tools/bin/uv")
    return subprocess.run(
        [program, "--no-progress", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )


def build(directory: Path, *options: str) -> list[Wheel]:
    """Build the distributions of the workspace into `directory`; without options each wheel is made from an sdist."""
    built = uv("build", "--all-packages", *options, "--out-dir", directory, cwd=REPOSITORY)
    assert built.returncode == 0, built.stderr
    return [Wheel(path) for path in sorted(directory.glob("*.whl"))]


def sources(distribution: str) -> dict[str, bytes]:
    """Return the tracked files of a distribution's package, as paths in a wheel."""
    folder, package = FOLDERS[distribution]
    source = REPOSITORY / folder / "src"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", package]
    tracked = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout
    return {name: (source / name).read_bytes() for name in tracked.split("\0") if name and (source / name).exists()}


def stranger(directory: Path, name: str) -> None:
    """Put a wheel named `name` into `directory` that anybody could have published: newer than any of ours."""
    directory.mkdir(exist_ok=True)
    information = f"{name}-99.0.dist-info"
    with zipfile.ZipFile(directory / f"{name}-99.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")


def environment(directory: Path, *distributions: str) -> Path:
    """Return a new environment with the third-party requirements of these, at the lock file's versions and hashes."""
    made = directory / "environment"
    requirements = directory / "requirements.txt"
    packages = [option for name in distributions for option in ("--package", name)]
    locked = ("--locked", "--no-default-groups", "--no-emit-workspace", "--format", "requirements-txt")
    exported = uv("export", "--quiet", *locked, *packages, "--output-file", requirements, cwd=REPOSITORY)
    assert exported.returncode == 0, exported.stderr
    for command in (
        ("venv", "--python", sys.executable, made),
        ("pip", "sync", "--python", made, "--require-hashes", requirements),
    ):
        done = uv(*command, cwd=directory)
        assert done.returncode == 0, done.stderr
    return made
