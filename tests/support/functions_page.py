# SPDX-License-Identifier: Apache-2.0
"""Steps of docs/functions.md, and the page's module as a wheel that is unpacked into a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.packages.distribution import uv
from tests.support.page import Kind, Step, steps
from tests.support.paths import PYTHON, REPOSITORY

PAGE = REPOSITORY / "docs/functions.md"
STEPS = steps(PAGE)
VERSION_OF_THE_WHEEL = "0.0.1"
_WHEEL = f"my_functions-{VERSION_OF_THE_WHEEL}-py3-none-any.whl"
_SECONDS = 120


def step(start: str) -> Step:
    """Return the only step whose text begins with `start`."""
    (found,) = (each for each in STEPS if each.text.startswith(start))
    return found


def edit(module: Path, done: Step) -> None:
    """Append the step's code to its file, after the two blank lines that Python's style asks for."""
    with (module / done.file).open("a") as file:
        file.write(f"\n\n{done.text}")


def build_wheel(module: Path) -> None:
    """Build the wheel; the page uses `pip wheel`, which the tests' environment does not have."""
    ran = uv("build", "--wheel", "--out-dir", ".", cwd=module)
    assert ran.returncode == 0, ran.stderr


def unpack_wheel(module: Path, *, into: str | Path) -> None:
    """Install the wheel into a directory; the page uses `pip install --target`."""
    ran = uv("pip", "install", "--no-deps", "--python", PYTHON, "--target", into, _WHEEL, cwd=module)
    assert ran.returncode == 0, ran.stderr


def unpacked_wheel(directory: Path, *, into: Path) -> Path:
    """Make the module in `directory` with all edits of the page, unpack its wheel, and return the module's folder."""
    command = [str(PYTHON.with_name("updraft")), *step("updraft new").text.split()[1:]]
    subprocess.run(command, cwd=directory, env=dict(os.environ), check=True, timeout=_SECONDS)
    module = directory / "my_functions"
    for each in STEPS:
        if each.kind is Kind.EDIT:
            edit(module, each)
    build_wheel(module)
    unpack_wheel(module, into=into)
    return module
