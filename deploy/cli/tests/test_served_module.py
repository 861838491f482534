# SPDX-License-Identifier: Apache-2.0
"""Changes of served files and a taken port, as `updraft serve` detects them."""

import os
import re
import socket
from pathlib import Path

import pytest

from updraft_cli.served_module import ModuleFiles, ServeError, require_free


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
    # Repeat, because the clock of a file system advances only every few milliseconds.
    while module.stat().st_ctime_ns == before.st_ctime_ns or module.stat().st_mtime_ns != before.st_mtime_ns:
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.changes() == [module.name]
    files.look()
    assert files.changes() == []


def test_a_port_that_is_taken_is_refused_in_a_line_that_names_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError) as refused:
            require_free(port)
    line = str(refused.value)
    assert f"something else listens on port {port} of 127.0.0.1" in line
    found = re.search(r"--port (\d+)$", line)
    assert found is not None
    assert int(found[1]) != port
    for free in (0, port):
        require_free(free)
