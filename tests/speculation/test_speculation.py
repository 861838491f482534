# SPDX-License-Identifier: Apache-2.0
"""Spark starts a copy of a slow task elsewhere and takes the files of whichever is done first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.speculation.slow_host import PARTITIONS, ROWS
from tests.support.paths import REPOSITORY
from tests.support.writer import LocalWriter


@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", ["direct", "return"])
def test_a_task_and_its_copy_write_every_row_once(tmp_path: Path, delivery: str) -> None:
    path = tmp_path / "data"
    with LocalWriter(tmp_path) as writer:
        arguments = [writer.tcp_endpoint, delivery, str(path), str(tmp_path / "work")]
        command = [sys.executable, "-m", "tests.speculation.slow_host", *arguments]
        ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240)
        assert ran.returncode == 0, ran.stderr
        assert int(ran.stdout) > 0, "no task was copied"
        writer.becomes_empty()
        assert "aborted" in writer.log() or "cancelled" in writer.log()
    files = sorted(path.rglob("*.parquet"))
    assert [file.parent for file in files] == [path] * PARTITIONS
    assert sorted(pq.read_table(files).column("id").to_pylist()) == list(range(ROWS))
