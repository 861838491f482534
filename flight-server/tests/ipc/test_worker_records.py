# SPDX-License-Identifier: Apache-2.0
"""A zygote takes over exactly the workers that its predecessor recorded and that are still alive."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft_server.ipc.worker_records import WorkerRecords


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as running:
        yield running
        running.kill()


def survivors(directory: Path) -> dict[str, int]:
    found = list(WorkerRecords(directory).survivors())
    for survivor in found:
        os.close(survivor.pidfd)
    return {survivor.worker: survivor.pid for survivor in found}


def test_a_noted_worker_that_lives_is_found_again(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    WorkerRecords(tmp_path).add("a-1", process.pid)
    assert survivors(tmp_path) == {"a-1": process.pid}


def test_a_worker_that_has_ended_is_not_and_its_record_goes(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    WorkerRecords(tmp_path).add("a-1", process.pid)
    process.kill()
    process.wait()
    assert survivors(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_another_process_under_the_same_pid_is_not_a_worker(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    WorkerRecords(tmp_path).add("a-1", process.pid)
    record = tmp_path / "a-1"
    pid, started = record.read_text().split()
    record.write_text(f"{pid} {int(started) - 1}")
    assert survivors(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "47", "4711 ", "not numbers"])
def test_a_record_that_was_cut_short_is_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / "a-1").write_text(text)
    assert survivors(tmp_path) == {}
    assert not (tmp_path / "a-1").exists()


def test_a_record_that_is_being_written_is_left_alone(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_and_write(path: Path, text: str) -> int:
        with path.open("w") as file:
            assert survivors(tmp_path) == {}
            return file.write(text)

    monkeypatch.setattr(Path, "write_text", look_and_write)
    WorkerRecords(tmp_path).add("a-1", process.pid)
    assert survivors(tmp_path) == {"a-1": process.pid}


def test_a_forgotten_worker_is_not_found(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    records = WorkerRecords(tmp_path)
    records.add("a-1", process.pid)
    records.forget("a-1")
    records.forget("never-1")
    assert survivors(tmp_path) == {}
