# SPDX-License-Identifier: Apache-2.0
"""Audit log on full disks, with renamed files and with readers that are gone."""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from updraft.errors import UserError
from updraft.service.audit import NO_RECORD
from updraft.service.audit_file import AuditFile

FULL = Path("/dev/full")


def until(condition: Callable[[], bool]) -> None:
    give_up_seconds = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_seconds
        time.sleep(0.005)


def write(file: AuditFile, line: bytes) -> None:
    written = threading.Event()
    file.write(line, written.set)
    assert written.wait(60)


def test_lines_are_in_the_file_when_that_is_said(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit", keeps=True)
    for number in range(3):
        write(file, b"%d" % number)
        assert (tmp_path / "audit").read_bytes().count(b"\n") == number + 1
    assert file.lines == {"written": 3, "lost": 0}
    assert (tmp_path / "audit").stat().st_mode & 0o007 == 0


def test_a_file_that_was_renamed_is_followed_by_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._ROTATION_LOOK_SECONDS", 0.0)
    path = tmp_path / "audit"
    file = AuditFile(path, keeps=True)
    write(file, b"first")
    path.rename(tmp_path / "audit.1")
    write(file, b"second")
    assert (path.read_text(), (tmp_path / "audit.1").read_text()) == ("second\n", "first\n")


def test_what_cannot_be_written_is_counted() -> None:
    file = AuditFile(FULL, keeps=False)
    file.write(b"lost")
    until(lambda: file.lines["lost"] == 1)
    assert file.failure == "No space left on device"


def test_what_cannot_be_written_waits_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("updraft.service.audit_file._ROTATION_LOOK_SECONDS", 0.0)
    path = tmp_path / "audit"
    path.symlink_to(FULL)
    file = AuditFile(path, keeps=True)
    for line in (b"first", b"second"):
        file.write(line)
    until(lambda: bool(file.failure))
    (tmp_path / "room").touch()
    (tmp_path / "next").symlink_to("room")
    (tmp_path / "next").rename(path)
    until(lambda: file.lines["written"] == 2)
    assert not file.failure
    assert path.read_text() == "first\nsecond\n"


def test_no_more_lines_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._MOST_WAITING", 3)
    file = AuditFile(FULL, keeps=True)
    for _ in range(10):
        file.write(b"waits")
    assert file.lines == {"written": 0, "lost": 7}


def test_no_more_bytes_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._MOST_WAITING_BYTES", 100)
    file = AuditFile(FULL, keeps=True)
    for _ in range(5):
        file.write(b"x" * 30)
    assert file.lines == {"written": 0, "lost": 2}
    file.close()


def test_room_is_free_again_when_lines_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._MOST_WAITING_BYTES", 100)
    file = AuditFile(tmp_path / "audit", keeps=True)
    for _ in range(20):
        write(file, b"x" * 99)
    assert file.lines == {"written": 20, "lost": 0}


def test_a_pipe_that_nobody_reads_cannot_be_opened_and_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address"):
        AuditFile(pipe, keeps=True)


def test_a_file_that_becomes_such_a_pipe_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit_file._ROTATION_LOOK_SECONDS", 0.0)
    path = tmp_path / "audit"
    file = AuditFile(path, keeps=False)
    path.unlink()
    os.mkfifo(path)
    file.write(b"lost")
    until(lambda: file.lines["lost"] == 1)
    assert file.failure == "No such device or address"


def test_a_line_that_was_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A limit on the file's size truncates the line as a full disk would."""
    script = """
import resource, signal, sys, time
from pathlib import Path
from updraft.errors import UserError
from updraft.service.audit import NO_RECORD
from updraft.service.audit_file import AuditFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = AuditFile(Path(sys.argv[1]), keeps=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (5, resource.RLIM_INFINITY))
file.write(b"torn in the middle")
while not file.lines["lost"]:
    time.sleep(0.001)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.write(b"whole")
file.close()
"""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("files are limited already")
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "audit")], check=True)
    assert (tmp_path / "audit").read_text() == "torn \nwhole\n"


def test_standard_output_has_lines_that_somebody_reads() -> None:
    script = """
from updraft.service.audit_file import STANDARD_OUTPUT, AuditFile
file = AuditFile(STANDARD_OUTPUT, keeps=True)
file.write(b"said")
file.close()
"""
    assert subprocess.check_output([sys.executable, "-c", script]) == b"said\n"


def test_what_waits_is_given_up_at_the_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        os.set_blocking(writing, False)
        while True:
            try:
                os.write(writing, bytes(4096))
            except BlockingIOError:
                break
        file = AuditFile(Path(f"/proc/self/fd/{pipe.fileno()}"), keeps=True)
        file.write(b"nobody reads it")
        began_seconds = time.monotonic()
        file.close()
        assert time.monotonic() - began_seconds < 60
        file.write(b"too late")
        assert file.lines["lost"] >= 1


def test_without_an_audit_log_no_error_is_kept_alive() -> None:
    NO_RECORD.fail(UserError("its traceback holds the batch"))
    assert NO_RECORD._failure is None
