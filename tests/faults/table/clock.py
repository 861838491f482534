# SPDX-License-Identifier: Apache-2.0
"""Wall clock for the processes of one service, which a test shifts while they run."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("clock.c")
_OFFSET = struct.Struct("l")
# Code that every process of a service runs when its interpreter starts. A zygote inherits few variables, and not
# LD_PRELOAD, so a process without LD_PRELOAD restarts itself once.
_PRELOAD = """
import os, sys
if os.environ.get("LD_PRELOAD") != {library!r}:
    os.environ.update(LD_PRELOAD={library!r}, UPDRAFT_TEST_CLOCK={offset!r})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""


class Clock:
    """Wall clock of a service. A file contains the offset from the machine's clock in seconds."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        offset.write_bytes(_OFFSET.pack(0))

    def put_off(self, seconds: int) -> None:
        """Set the clock to this many seconds after the machine's clock, or before it if negative."""
        # Write in place, because the processes have mapped the file.
        with self._offset.open("r+b") as offset:
            offset.write(_OFFSET.pack(seconds))


def why_no_clock() -> str:
    """Return why this machine cannot shift clocks; empty if it can."""
    return "" if shutil.which("cc") else "a clock for a service alone needs a C compiler"


@contextlib.contextmanager
def off_clock(directory: Path) -> Iterator[Clock]:
    """Give a service that starts within the block a clock that can be shifted, with files in `directory`."""
    library, offset = directory / "clock.so", directory / "offset"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    packages = directory / "packages"
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(_PRELOAD.format(library=str(library), offset=str(offset)))
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
        yield Clock(offset)
