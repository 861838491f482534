# SPDX-License-Identifier: Apache-2.0
"""With STRICT, a test that would be skipped fails and names what the machine lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

_SKIPPED = {
    "by itself": "def test_it(): pytest.skip('no prometheus')",
    "by a fixture": "@pytest.fixture\ndef absent(): pytest.skip('no prometheus')\ndef test_it(absent): pass",
    "by a mark": "@pytest.mark.skipif(True, reason='no prometheus')\ndef test_it(): pass",
    "with its module": "pytest.skip('no prometheus', allow_module_level=True)",
}
_STRICT = ("-p", "tests.support.strict")


def _run(directory: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = directory / "test_one.py"
    file.write_text(f"import pytest\n{text}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={directory}", *options]
    return subprocess.run(
        [*command, str(file)], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("text", _SKIPPED.values(), ids=_SKIPPED)
def test_a_skipped_test_fails_with_the_reason(tmp_path: Path, text: str) -> None:
    ran = _run(tmp_path, text, *_STRICT)
    assert ran.returncode != 0
    assert "may not be skipped here: " in ran.stdout
    assert "no prometheus" in ran.stdout


def test_others_pass(tmp_path: Path) -> None:
    expected = "@pytest.mark.xfail(strict=True)\ndef test_it(): assert False"
    assert _run(tmp_path, "def test_it(): pass", *_STRICT).returncode == 0
    assert _run(tmp_path, expected, *_STRICT).returncode == 0


@pytest.mark.parametrize(("assigned", "strict"), [("STRICT=1", True), ("STRICT=", False)])
def test_make_hands_it_to_pytest(assigned: str, strict: bool) -> None:
    command = ["make", "--dry-run", "--no-print-directory", "e2e-kube", "KUBECONFIG=none", assigned]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True).stdout
    (line,) = (line for line in printed.splitlines() if "-m pytest" in line and "tests/kube" in line)
    assert (" ".join(_STRICT) in line) is strict
