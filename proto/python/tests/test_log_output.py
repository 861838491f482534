# SPDX-License-Identifier: Apache-2.0
"""Log lines to a working, an unread or a failing descriptor; every file is real."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from updraft.service.log_output import MAX_LINE_BYTES, LogDrops, LogOutput, log_stream

WITHIN_SECONDS = 60.0
PIPE_BYTES = 64 * 1024


def gap_line(lines: int) -> bytes:
    return b"%d lines are missing\n" % lines


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def read_until(reading: int, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        received += os.read(reading, PIPE_BYTES)
    return received


@pytest.mark.parametrize("is_blocking", [True, False])
def test_nobody_who_logs_waits_for_a_reader_and_a_line_says_how_many_are_missing(
    pipe: tuple[int, int], is_blocking: bool
) -> None:
    reading, writing = pipe
    os.set_blocking(writing, is_blocking)
    drops = LogDrops()
    output = LogOutput(writing, drops, gap_line, buffer_bytes=100_000)
    line = b"x" * 999 + b"\n"
    for _ in range(1000):
        output.write(line)
    missing = drops.lines["unread"]
    # Only the lines in the pipe and the buffer are kept.
    assert 1000 - (PIPE_BYTES + 100_000) // 1000 <= missing < 1000
    kept = read_until(reading, line * (1000 - missing))
    assert kept == line * (1000 - missing)
    output.write(b"last\n")
    assert read_until(reading, b"last\n") == gap_line(missing) + b"last\n"
    output.close()
    assert drops.lines == {"unread": missing, "failed": 0, "flood": 0}


def test_lines_that_a_full_disk_refuses_are_counted_and_later_ones_written(tmp_path: Path) -> None:
    drops = LogDrops()
    # Every write to this device fails with ENOSPC.
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with (tmp_path / "log").open("wb") as file, closing(LogOutput(descriptor, drops, gap_line)) as output:
        for number in range(3):
            output.write(b"lost %d\n" % number)
        wait_for(lambda: drops.lines["failed"] == 3)
        os.dup2(file.fileno(), descriptor)
        output.write(b"kept\n")
        output.close()
    os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == gap_line(3) + b"kept\n"


# Acts like a disk that is full after nine bytes, and then has room again.
BEYOND_A_LIMIT = """
import resource, signal, sys, time
from updraft.service.log_output import LogDrops, LogOutput
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
drops = LogDrops()
with open(sys.argv[1], "wb") as file:
    output = LogOutput(file.fileno(), drops, lambda lines: b"%d lines are missing\\n" % lines)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, most))
    output.write(b"first\\n")
    output.write(b"second\\n")
    while drops.lines["failed"] == 0:
        time.sleep(0.005)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    output.write(b"third\\n")
    output.close()
"""


def test_a_line_of_which_a_full_disk_took_a_part_is_ended_before_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", BEYOND_A_LIMIT, tmp_path / "log"], check=True, timeout=WITHIN_SECONDS)
    assert (tmp_path / "log").read_bytes() == b"first\nsec\n" + gap_line(1) + b"third\n"


def test_a_reader_that_is_gone_fails_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    drops = LogDrops()
    with closing(LogOutput(writing, drops, gap_line)) as output:
        output.write(b"lost\n")
        wait_for(lambda: drops.lines["failed"] == 1)
    os.close(writing)


def test_what_is_buffered_is_written_at_the_end(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    output = LogOutput(writing, LogDrops(), gap_line)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_until(reading, b"the last\n")))
    reader.start()
    for _ in range(200):
        output.write(b"x" * 999 + b"\n")
    output.write(b"the last\n")
    output.close()
    reader.join(WITHIN_SECONDS)
    assert len(received[0]) == 200_009


def test_an_end_does_not_wait_for_a_reader_that_never_comes() -> None:
    reading, writing = os.pipe()
    output = LogOutput(writing, LogDrops(), gap_line)
    for _ in range(1000):
        output.write(b"x" * 999 + b"\n")
    end = threading.Thread(target=output.close)
    end.start()
    end.join(WITHIN_SECONDS)
    assert not end.is_alive()
    os.close(reading)
    wait_for(lambda: all(thread.name != "log" for thread in threading.enumerate()))
    os.close(writing)


def test_a_text_that_is_longer_than_a_line_may_be_is_cut_and_says_so(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with closing(LogOutput(writing, LogDrops(), gap_line)) as output:
        output.write(b"\xc3\xa4" * 500_000 + b"\n")
        text = read_until(reading, b"\n")
    assert len(text) <= MAX_LINE_BYTES
    assert text.decode().endswith("ä... [cut from 1000001 bytes]\n")


def test_what_is_printed_to_the_stream_comes_in_whole_lines(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with closing(LogOutput(writing, LogDrops(), gap_line)) as output:
        stream = log_stream(output)
        print("one", "two", file=stream)
        print("three", file=stream)
        assert read_until(reading, b"three\n") == b"one two\nthree\n"
