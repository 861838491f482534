# SPDX-License-Identifier: Apache-2.0
"""What a writer records of its files."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running_writer import running_writer

from updraft.errors import PoolUnavailableError, UpdraftError

ROWS = pa.record_batch({"n": pa.array(range(10))})


def write(writer: Any, path: Path) -> None:
    with writer.client() as client, client.create(str(path), ROWS.schema) as file:
        file.write(ROWS)


def records(log: Path, count: int) -> list[dict[str, Any]]:
    give_up_seconds = time.monotonic() + 60
    while (lines := log.read_text().splitlines()) and len(lines) < count:
        assert time.monotonic() < give_up_seconds, lines
        time.sleep(0.01)
    return [json.loads(line) for line in lines]


def test_files_are_recorded_with_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    log = tmp_path / "audit"
    with running_writer(tmp_path / "root", audit_file=log) as writer:
        write(writer, tmp_path / "root/f")
        with pytest.raises(UpdraftError):
            write(writer, tmp_path / "elsewhere")
        opened, ended, *others = records(log, 4)
    size = (tmp_path / "root/f").stat().st_size
    assert (opened["event"], opened["path"], opened["format"]) == ("opened", f"{tmp_path}/root/f", "parquet")
    assert (ended["event"], ended["outcome"], ended["rows"], ended["bytes"]) == ("ended", "ok", 10, size)
    assert others[-1]["outcome"] == "WriteRefusedError"


def test_no_file_is_made_that_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with running_writer(tmp_path / "root", audit_file=Path("/dev/full")) as writer:
        with pytest.raises(PoolUnavailableError, match="this writer does nothing that it cannot record"):
            write(writer, tmp_path / "root/f")
        assert not list((tmp_path / "root").iterdir())
