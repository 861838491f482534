# SPDX-License-Identifier: Apache-2.0
"""What `updraft serve` sees of the files that it serves."""

import os
from pathlib import Path

import pytest

from updraft_cli.served_module import ModuleFiles


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written = tmp_path / "served_once.py"
    written.write_text("RATE = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return written


def test_a_file_that_nobody_has_written_has_no_changes(module: Path) -> None:
    assert ModuleFiles(module.stem).changes() == []


@pytest.mark.parametrize("text", ["RATE = 20\n", "RATE = 2\n"])
def test_a_file_that_keeps_its_time_has_changed_all_the_same(module: Path, text: str) -> None:
    files = ModuleFiles(module.stem)
    before = module.stat()
    replacement = module.with_suffix(".new")
    replacement.write_text(text)
    replacement.replace(module)
    # The clock of a file system moves every few milliseconds.
    while module.stat().st_ctime_ns == before.st_ctime_ns or module.stat().st_mtime_ns != before.st_mtime_ns:
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.changes() == [module.name]
    files.look()
    assert files.changes() == []
