# SPDX-License-Identifier: Apache-2.0
"""docs/functions.md: its steps, and the module that it writes, as a wheel that is unpacked into a directory."""

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
    """The one that begins so."""
    (found,) = (each for each in STEPS if each.text.startswith(start))
    return found


def edit(module: Path, done: Step) -> None:
    """Put what the page says at the end of a file, where Python's style has two empty lines before it."""
    with (module / done.file).open("a") as file:
        file.write(f"\n\n{done.text}")


def build_wheel(module: Path) -> None:
    """What the page does with `pip wheel`, which the environment of the tests does not have."""
    ran = uv("build", "--wheel", "--out-dir", ".", cwd=module)
    assert ran.returncode == 0, ran.stderr


def unpack_wheel(module: Path, *, into: str | Path) -> None:
    """What the page does with `pip install --target`."""
    ran = uv("pip", "install", "--no-deps", "--python", PYTHON, "--target", into, _WHEEL, cwd=module)
    assert ran.returncode == 0, ran.stderr


def unpacked_wheel(directory: Path, *, into: Path) -> Path:
    """The module's directory in `directory`, once all that the page writes is in it and its wheel is unpacked."""
    command = [str(PYTHON.with_name("updraft")), *step("updraft new").text.split()[1:]]
    subprocess.run(command, cwd=directory, env=dict(os.environ), check=True, timeout=_SECONDS)
    module = directory / "my_functions"
    for each in STEPS:
        if each.kind is Kind.EDIT:
            edit(module, each)
    build_wheel(module)
    unpack_wheel(module, into=into)
    return module
