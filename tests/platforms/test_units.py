# SPDX-License-Identifier: Apache-2.0
"""Units of deploy/systemd, as systemd-analyze judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

_UNITS = sorted((REPOSITORY / "deploy/systemd").glob("*.service"))
# In tenths of systemd's scale from 0 (safe) to 10; a stock unit has 9.6. Workers need namespaces and all syscalls.
_EXPOSURE = {"updraft-front": 20, "updraft-writer": 20, "updraft-workers": 25}

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not on PATH")


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    for other in _UNITS:
        # The services' programs are not installed here.
        started = re.sub(r"^ExecStart=.*", "ExecStart=/bin/true", other.read_text(), flags=re.MULTILINE)
        (tmp_path / other.name).write_text(started)
    judged = _analyze("verify", "--man=no", "--recursive-errors=no", str(tmp_path / unit.name))
    assert (judged.returncode, judged.stderr) == (0, "")


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.stem)
def test_a_unit_stays_hardened(unit: Path) -> None:
    judged = _analyze("security", "--offline=true", f"--threshold={_EXPOSURE[unit.stem]}", "--no-pager", str(unit))
    assert judged.returncode == 0, judged.stdout
