# SPDX-License-Identifier: Apache-2.0
"""Java programs of one source file, which tests run beside a pool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_TIMEOUT_SECONDS = 120


def run_java(class_path: str, source: Path, *arguments: str, text: str = "") -> str:
    """What the program prints; an AssertionError with its errors when it fails."""
    command = java_command(class_path, source, *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def java_command(class_path: str, source: Path, *arguments: str) -> list[str]:
    """What starts the program, with Arrow allowed to reach its memory."""
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    return ["java", opened, "-Xmx256m", "-cp", class_path, str(source), *arguments]


def java_home() -> Path:
    """Where the Java on PATH is installed, as it says itself."""
    command = ["java", "-XshowSettings:properties", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True).stderr
    found = re.search(r"^ *java\.home = (.*)$", said, re.MULTILINE)
    assert found, said
    return Path(found[1])
