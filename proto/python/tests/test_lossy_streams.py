# SPDX-License-Identifier: Apache-2.0
"""A process with an unread or failing standard error writes what it can and goes on; every process is real."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WITHIN_SECONDS = 60.0

SPEAKS = """
import sys
from updraft.service.lossy_streams import protect_standard_streams
protect_standard_streams()
sys.stderr.write("first\\n")
for _ in range(1000):
    print("x" * 1000)
    sys.stderr.write("x" * 1000 + "\\n")
"""

WRITES_AS_C_DOES = """
import os, sys
from updraft.service.lossy_streams import protect_standard_streams
protect_standard_streams()
try:
    while True:
        os.write(2, b"x" * 1000)
except BlockingIOError:
    sys.exit(7)
"""


def run(script: str, log: Any) -> int:
    return subprocess.run([sys.executable, "-c", script], stdout=log, stderr=log, timeout=WITHIN_SECONDS).returncode


def test_who_prints_to_a_pipe_that_nobody_reads_goes_on() -> None:
    reading, writing = os.pipe()
    assert run(SPEAKS, writing) == 0
    assert os.read(reading, 100).startswith(b"first\nxxx")
    os.close(reading)
    os.close(writing)


def test_a_library_that_writes_to_a_full_pipe_is_told_so_while_its_starter_still_waits() -> None:
    reading, writing = os.pipe()
    assert run(WRITES_AS_C_DOES, writing) == 7
    assert os.get_blocking(writing)
    os.close(reading)
    os.close(writing)


def test_who_prints_to_a_socket_that_nobody_reads_goes_on() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        assert run(SPEAKS, its) == 0
        assert ours.recv(100).startswith(b"first\n")


def test_who_prints_to_a_reader_that_is_gone_goes_on() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert run(SPEAKS, writing) == 0
    os.close(writing)


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_who_prints_to_a_device_goes_on(device: str) -> None:
    with Path(device).open("wb") as log:
        assert run(SPEAKS, log) == 0


def test_processes_that_share_a_file_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as log:
        log.write(b"before\n")
        assert run(SPEAKS, log) == 0
        log.write(b"after\n")
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"before\nfirst\nxxx")
    assert text.endswith(b"x\nafter\n")
    assert len(text) == len(b"before\nfirst\nafter\n") + 2 * 1000 * 1001


def test_a_process_without_standard_streams_goes_on() -> None:
    command = f"exec {sys.executable} -c '{SPEAKS}' >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], timeout=WITHIN_SECONDS).returncode == 0
