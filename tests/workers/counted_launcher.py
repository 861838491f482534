# SPDX-License-Identifier: Apache-2.0
"""`updraft-python` that records each of its starts."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

from tests.workers.sides import LAUNCHER


class CountedLauncher:
    """Executable that records which process starts it, and then becomes `updraft-python`."""

    def __init__(self, directory: Path) -> None:
        """Write the executable into the directory, with an empty record."""
        self.path = directory / "updraft-python"
        self._starts = directory / "starts"
        self._starts.touch()
        note = f'echo "$PPID $*" >>{shlex.quote(str(self._starts))}'
        self.path.write_text(f'#!/usr/bin/env bash\n{note}\nexec {shlex.quote(str(LAUNCHER))} "$@"\n')
        self.path.chmod(0o755)

    def daemons(self) -> list[int]:
        """Return how many daemons of workers each JVM has started; omit JVMs without a daemon."""
        starts = (line.split(" ", 1) for line in self._starts.read_text().splitlines())
        return sorted(Counter(jvm for jvm, command in starts if command.startswith("-m pyspark.daemon")).values())
