# SPDX-License-Identifier: Apache-2.0
"""Writer whose process dies or hangs, and one whose supervisor does."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from running_writer import WITHIN_SECONDS
from tests.support.constants import NOTHING, with_constants
from tests.support.writer import with_receivers
from writer_process import COMMAND

from updraft.client.writer import WriterClient
from updraft.errors import UpdraftError
from updraft.service.privileges import KEPT

# Errors that clients raise when the writer goes away.
BROKEN = (UpdraftError, pa.ArrowException, OSError)
TABLE = pa.table({"n": pa.arange(0, 1000, 1)})


class Supervised:
    """Supervisor and child of `updraft-writer serve`."""

    def __init__(self, directory: Path, constants: Mapping[str, object] = NOTHING) -> None:
        self.directory = directory
        self.log_file, ready = directory / "log", directory / "ready.json"
        listen = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]
        arguments = ["serve", *listen, f"--root={directory}", f"--ready-file={ready}"]
        with self.log_file.open("wb") as log:
            environment = with_constants(directory, constants)
            self.process = subprocess.Popen([*COMMAND, *arguments], stdout=log, stderr=log, env=environment)
        self.eventually(ready.exists)
        self.address = json.loads(ready.read_text())["listen"]

    def child(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def eventually(self, condition: Callable[[], bool]) -> None:
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < WITHIN_SECONDS, self.log_file.read_text()
            time.sleep(0.01)

    def writes(self, name: str) -> bool:
        try:
            with WriterClient(self.address) as client, client.create(str(self.directory / name), TABLE.schema) as file:
                file.write(TABLE)
        except BROKEN:
            return False
        return True


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path)
    try:
        yield supervised
    finally:
        supervised.process.kill()
        supervised.process.wait()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_writer_that_is_killed_serves_again_at_the_same_address(
    writer: Supervised, signal_number: signal.Signals
) -> None:
    killed = writer.child()
    with (
        WriterClient(writer.address) as client,
        suppress(*BROKEN),
        client.create(str(writer.directory / "lost.parquet"), TABLE.schema) as file,
    ):
        file.write(TABLE)
        killed.send_signal(signal_number)
        killed.wait(WITHIN_SECONDS)
    writer.eventually(lambda: writer.writes("again.parquet"))
    assert not (writer.directory / "lost.parquet").exists()
    assert writer.child() != killed
    assert "restarting it" in writer.log_file.read_text()
    writer.process.terminate()
    assert writer.process.wait(WITHIN_SECONDS) == 0


def test_a_writer_that_hangs_is_replaced(writer: Supervised) -> None:
    hanging = writer.child()
    hanging.suspend()
    writer.eventually(lambda: not hanging.is_running())
    writer.eventually(lambda: writer.writes("again.parquet"))
    assert "the writer has not reported for 5 seconds: killing it" in writer.log_file.read_text()


def test_receivers_end_with_their_writer_and_leave_the_port_to_the_next_ones(tmp_path: Path) -> None:
    writer = Supervised(tmp_path, with_receivers(2))
    try:
        killed = writer.child()
        receivers = killed.children()
        assert len(receivers) == 2
        killed.kill()
        writer.eventually(lambda: not any(receiver.is_running() for receiver in receivers))
        writer.eventually(lambda: writer.writes("again.parquet"))
        successors = writer.child().children()
        assert len(successors) == 2
        writer.process.terminate()
        assert writer.process.wait(WITHIN_SECONDS) == 0
        assert not any(receiver.is_running() for receiver in successors)
    finally:
        writer.process.kill()
        writer.process.wait()


def test_a_writer_ends_with_its_supervisor(writer: Supervised) -> None:
    child = writer.child()
    writer.process.kill()
    writer.eventually(lambda: not child.is_running())


def test_a_writer_that_dies_again_and_again_is_given_up(writer: Supervised) -> None:
    def dies() -> bool:
        with suppress(psutil.NoSuchProcess, ValueError):
            writer.child().kill()
        return writer.process.poll() is not None

    writer.eventually(dies)
    assert writer.process.returncode == 1
    assert "the 5th death within 10 seconds: giving up" in writer.log_file.read_text()


def test_a_second_request_to_end_does_not_wait(writer: Supervised) -> None:
    with (
        WriterClient(writer.address) as client,
        suppress(*BROKEN),
        client.create(str(writer.directory / "unfinished.parquet"), TABLE.schema) as file,
    ):
        file.write(TABLE)
        writer.process.terminate()
        writer.eventually(lambda: "draining" in writer.log_file.read_text())
        assert writer.process.poll() is None
        writer.process.terminate()
    assert writer.process.wait(WITHIN_SECONDS) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="who is not root has no capabilities to give up")
def test_a_writer_that_root_started_keeps_what_opens_files_and_ports(writer: Supervised) -> None:
    assert writer.writes("file.parquet")
    kept = sum(1 << capability for capability in KEPT)
    held = set()
    for status in Path(f"/proc/{writer.child().pid}/task").glob("*/status"):
        # A thread may end between the two looks.
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = status.read_text().splitlines()
            held |= {
                int(line.split()[1], 16) for line in lines if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb"))
            }
    assert kept in held
    assert not any(found & ~kept for found in held)
