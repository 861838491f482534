# SPDX-License-Identifier: Apache-2.0
"""A zygote starts regardless of what its record of workers contains, and takes over only workers."""

import os
from pathlib import Path

import pytest

from updraft_server.ipc.worker_records import WorkerRecords

LATER = 10**30


def survivors(directory: Path) -> list[str]:
    found = list(WorkerRecords(directory).survivors())
    for survivor in found:
        os.close(survivor.pidfd)
    return [survivor.worker for survivor in found]


@pytest.mark.parametrize("text", [f"{LATER} 1", f"1 {LATER}", "-1 0", "0 0", "1e3 5", "\0", "9" * 5000])
def test_a_record_that_names_no_process_is_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / "a-1").write_text(text)
    assert survivors(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_not_text_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a-1").write_bytes(b"\xff\xfe")
    assert survivors(tmp_path) == []


def test_what_is_not_a_file_does_not_hold_a_zygote_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a-1")
    (tmp_path / "a-2").mkdir()
    (tmp_path / "a-3").symlink_to("/proc/self/environ-of-nobody")
    assert survivors(tmp_path) == []


def test_a_directory_that_was_tidied_away_is_made_again(tmp_path: Path) -> None:
    records = WorkerRecords(tmp_path / "workers")
    assert list(records.survivors()) == []
    (tmp_path / "workers").rmdir()
    records.add("a-1", os.getpid())
    assert survivors(tmp_path / "workers") == ["a-1"]


def test_a_directory_that_was_replaced_does_not_hold_a_supervisor_up(tmp_path: Path) -> None:
    (tmp_path / "workers").touch()
    assert WorkerRecords(tmp_path / "workers").living() == set()


def test_a_record_that_names_a_worker_through_a_link_is_dropped(tmp_path: Path) -> None:
    records = WorkerRecords(tmp_path / "workers")
    records.add("a-1", os.getpid())
    assert records.living() == {os.getpid()}
    (tmp_path / "workers" / "a-1").rename(tmp_path / "elsewhere")
    (tmp_path / "workers" / "a-1").symlink_to(tmp_path / "elsewhere")
    assert records.living() == set()
