# SPDX-License-Identifier: Apache-2.0
"""Java programs of one source file, which tests run beside a pool."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.spark import SHORT_LIVED_JVM

_TIMEOUT_SECONDS = 120


def run_java(class_path: str, source: Path, *arguments: str, text: str = "", options: Sequence[str] = ()) -> str:
    """Run a program and return what it prints; raise AssertionError with its errors if it fails.

    `options` are options of the JVM.
    """
    command = java_command(class_path, source, *arguments)
    command[1:1] = options
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def java_command(class_path: str, source: Path, *arguments: str) -> list[str]:
    """Return the command that starts the program; it lets Arrow access the JVM's memory internals."""
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    classes = f"{_compiled(class_path, source)}:{class_path}"
    return ["java", *SHORT_LIVED_JVM.split(), opened, "-Xmx256m", "-cp", classes, source.stem, *arguments]


@functools.cache
def _compiled(class_path: str, source: Path) -> Path:
    """Return the folder with the program's classes, which are compiled once for all tests of this process."""
    folder = Path(tempfile.mkdtemp(prefix="updraft-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options = [f"-J{option}" for option in SHORT_LIVED_JVM.split()]
    command = ["javac", *options, "-cp", class_path, "-d", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder


def java_home() -> Path:
    """Return the home of the Java on PATH, as Java reports it."""
    command = ["java", "-XshowSettings:properties", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True).stderr
    found = re.search(r"^ *java\.home = (.*)$", said, re.MULTILINE)
    assert found, said
    return Path(found[1])
