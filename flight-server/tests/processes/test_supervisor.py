# SPDX-License-Identifier: Apache-2.0
"""Whole `updraft-server serve`, whose processes are killed one by one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from other_processes import HANG_SECONDS, eventually, lives, named
from pyarrow import flight

COMMAND = str(Path(sys.executable).with_name("updraft-server"))


class Server:
    """Served pool and its processes."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._ready_file = directory / "ready.json"
        arguments = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--metrics-listen", "", "--workers", "2"]
        self.process = subprocess.Popen(
            [COMMAND, *arguments, "--ready-file", str(self._ready_file), *options],
            stderr=subprocess.PIPE,
        )

    def wait_until_ready(self) -> None:
        eventually(self._ready_file.exists)
        self._address = json.loads(self._ready_file.read_text())["listen"]

    def child(self, module: str) -> psutil.Process:
        """Return the front or the zygote; workers look like the zygote but lead their own session."""
        found = self.children(module)
        assert found, module
        return found[0]

    def children(self, module: str) -> list[psutil.Process]:
        found = []
        for child in psutil.Process(self.process.pid).children():
            # It may have ended meanwhile.
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if f"updraft_server.{module}.process" in child.cmdline() and os.getsid(child.pid) != child.pid:
                    found.append(child)
        return found

    def workers(self) -> list[psutil.Process]:
        """Return all workers: a worker whose zygote died is the supervisor's child and continues."""
        return named(self.family(), "updraft-worker")

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def answers(self, function: str = "echo") -> bool:
        batch = pa.record_batch({"x": [1, 2]})
        try:
            with flight.connect(f"grpc://{self._address}") as client:
                options = flight.FlightCallOptions(timeout=5)
                writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(function), options=options)
                with writer:
                    writer.begin(batch.schema)
                    writer.write_batch(batch)
                    writer.done_writing()
                    return bool(reader.read_all().num_rows == 2)
        except flight.FlightError:
            return False
        except pa.ArrowInvalid:
            return False

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    started.wait_until_ready()
    yield started
    started.stop()


@pytest.mark.parametrize("victim", ["zygote", "front"])
def test_a_killed_process_is_started_again_and_the_pool_answers(server: Server, victim: str) -> None:
    killed = server.child(victim)
    killed.kill()
    eventually(lambda: not killed.is_running() and server.answers())
    eventually(lambda: [child for child in server.children(victim) if child.pid != killed.pid])
    eventually(lambda: len(server.workers()) == 2)


def test_nobody_of_the_workers_side_meets_a_second_front(server: Server) -> None:
    family = [server.child("zygote"), *server.workers()]
    front = server.child("front")
    front.kill()
    eventually(lambda: not any(member.is_running() for member in family))
    eventually(server.answers)
    eventually(lambda: len(server.workers()) == 2)


def test_all_workers_killed_at_once_are_replaced(server: Server) -> None:
    victims = server.workers()
    for worker in victims:
        worker.kill()
    eventually(server.answers)
    eventually(lambda: len(server.workers()) == 2)


def test_a_killed_supervisor_leaves_nobody_behind(server: Server) -> None:
    family = server.family()
    assert len(family) == 4
    server.process.kill()
    server.process.wait()
    eventually(lambda: not any(map(lives, family)))


SLOW_FUNCTIONS = """
import time
from pathlib import Path
import pyarrow as pa
from updraft import function

@function
def sleep(batch: pa.RecordBatch) -> pa.RecordBatch:
    Path(__file__).with_name("sleeps").touch()
    time.sleep(60)
"""


def serving_slow_functions(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Server:
    (directory / "slow_functions.py").write_text(SLOW_FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    server = Server(directory, "--functions=slow_functions", *options)
    server.wait_until_ready()
    return server


def call_sleep(client: flight.FlightClient) -> tuple[Any, Any]:
    batch = pa.record_batch({"x": [1]})
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("sleep"))
    writer.begin(batch.schema)
    writer.write_batch(batch)
    return writer, reader


def test_a_killed_supervisor_takes_workers_that_are_busy_in_a_function_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving_slow_functions(tmp_path, monkeypatch)
    family = server.family()
    with flight.connect(f"grpc://{server._address}") as client:
        call = call_sleep(client)
        eventually((tmp_path / "sleeps").exists)
        server.process.kill()
        server.process.communicate()
        eventually(lambda: not any(map(lives, family)))
        with pytest.raises(flight.FlightUnavailableError):
            call[0].close()


def test_the_batch_timeout_ends_a_function_of_a_module_and_says_which_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving_slow_functions(tmp_path, monkeypatch, "--batch-timeout-seconds=0.3")
    try:
        with flight.connect(f"grpc://{server._address}") as client:
            writer, reader = call_sleep(client)
            with pytest.raises(flight.FlightTimedOutError, match=r"0\.3 seconds.*--batch-timeout-seconds"):
                reader.read_chunk()
            with pytest.raises(flight.FlightTimedOutError):
                writer.close()
        eventually(server.answers)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("source", "reason"),
    [(None, b"No module named 'broken_functions'"), ("1 / 0\n", b"ZeroDivisionError: division by zero (")],
)
def test_a_module_that_cannot_be_imported_is_named_and_the_pool_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, reason: bytes
) -> None:
    if source is not None:
        (tmp_path / "broken_functions.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = Server(tmp_path, "--functions=broken_functions")
    server.wait_until_ready()
    assert server.answers()
    server.process.terminate()
    _, errors = server.process.communicate(timeout=HANG_SECONDS)
    assert server.process.returncode == 0
    (line,) = (line for line in errors.splitlines() if line.startswith(b"updraft-server: "))
    assert line.startswith(b"updraft-server: the module 'broken_functions' of --functions cannot be imported: ")
    assert reason in line


def test_a_signal_drains_and_ends_everything_with_success(server: Server) -> None:
    family = server.family()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(HANG_SECONDS) == 0
    assert not any(map(lives, family))


def test_a_front_that_cannot_start_ends_the_pool_with_its_reason(server: Server, tmp_path: Path) -> None:
    second = subprocess.run(
        [COMMAND, "serve", "--listen", server._address, "--admin-listen", "", "--metrics-listen", "", "--workers", "1"],
        stderr=subprocess.PIPE,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert second.returncode == 2
    assert server._address.encode() in second.stderr


NOTING_FUNCTIONS = """
import os
import pyarrow as pa
from updraft import function

@function
def note(batch: pa.RecordBatch) -> pa.RecordBatch:
    with open(os.path.dirname(__file__) + "/variables", "a") as file:
        file.writelines(f"{name}\\n" for name in os.environ)
    return batch

# The first time in the zygote, which imports this.
note(None)
"""


def test_secrets_in_the_environment_do_not_reach_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The function reports its own environment, because others cannot read that of processes that run user code.
    (tmp_path / "noting_functions.py").write_text(NOTING_FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    server = Server(tmp_path, "--functions=noting_functions")
    try:
        server.wait_until_ready()
        assert server.answers("note")
        names = (tmp_path / "variables").read_text().splitlines()
        assert names.count("PATH") == 2
        assert "DATABASE_PASSWORD" not in names
    finally:
        server.stop()
