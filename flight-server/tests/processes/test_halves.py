# SPDX-License-Identifier: Apache-2.0
"""Front and workers as two commands that find each other, wait for each other, and recover."""

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from other_processes import eventually, lives, named
from pyarrow import flight
from served_pool import (
    ECHO,
    HANG_SECONDS,
    SCHEMA,
    Server,
    batch,
    echo,
    finish,
    front_command,
    serves_again,
    workers_command,
)

SERVING = health_pb2.HealthCheckResponse.SERVING


LEAVING = """
import os, time
import pyarrow as pa
from updraft import function

# The test's directory; a worker has one of its own.
NOTES = os.environ["TMPDIR"]

@function
def daemon(batch: pa.RecordBatch) -> pa.RecordBatch:
    "Leaves a process behind."
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            with open(NOTES + "/noted", "w") as file:
                file.write(str(os.getpid()))
            os.rename(NOTES + "/noted", NOTES + "/daemon")
            # Live until another process ends this one.
            time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)
    return batch
"""


class Front(Server):
    """Front's half, which may still wait for its workers."""

    def __init__(self, directory: Path) -> None:
        self.ready_file = directory / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        self._log_file = directory / "front.log"
        with self._log_file.open("w") as log:
            command = front_command(directory, "--workers=2", f"--ready-file={self.ready_file}")
            self.process = subprocess.Popen(command, stderr=log)

    def is_ready(self) -> bool:
        return self.ready_file.exists() and self.health() == SERVING

    def health(self) -> int:
        with grpc.insecure_channel(self.ready()["admin_listen"]) as channel:
            return int(health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status)

    def log(self) -> str:
        return self._log_file.read_text()


class Workers:
    """Workers' half."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.process = subprocess.Popen(workers_command(directory, *options))

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """Kill the half and wait for all of its processes: one that outlives its parent may still make files."""
        family = self.family() if self.process.poll() is None else []
        kill(self.process)
        eventually(lambda: not any(map(lives, family)))

    def forked(self) -> list[psutil.Process]:
        return named(self.family(), "updraft-worker")


def kill(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def directory() -> Iterator[Path]:
    # Unlike pytest's, short enough for the path of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="updraft-halves-") as made:
        yield Path(made)


def test_each_half_waits_for_the_other_and_outlives_its_death(directory: Path) -> None:
    front = Front(directory)
    eventually(lambda: "the workers' side is unreachable" in front.log())
    assert not front.ready_file.exists()
    workers = Workers(directory)
    try:
        eventually(front.is_ready)
        with front.client() as client:
            echo(client)

        workers.kill()
        eventually(lambda: front.health() != SERVING)
        assert "the workers' side is back" in front.log()
        workers = Workers(directory)
        eventually(front.is_ready)
        eventually(lambda: serves_again(front))

        eventually(lambda: len(workers.forked()) == 2)
        forked = workers.forked()
        kill(front.process)
        eventually(lambda: not any(map(lives, forked)))
        front = Front(directory)
        eventually(front.is_ready)
        with front.client() as client:
            echo(client)
    finally:
        kill(front.process)
        workers.kill()


def test_workers_that_are_told_to_end_do_so_once_their_front_has_drained(directory: Path) -> None:
    workers, front = Workers(directory), Front(directory)
    try:
        eventually(front.is_ready)
        workers.process.send_signal(signal.SIGTERM)
        with front.client() as client:
            echo(client)
        assert workers.process.poll() is None
        assert front.stop() == 0
        assert workers.process.wait(HANG_SECONDS) == 0
    finally:
        kill(front.process)
        workers.kill()


def test_workers_that_are_told_to_load_their_functions_again_drop_no_exchange(directory: Path) -> None:
    front, workers = Front(directory), Workers(directory)
    try:
        eventually(front.is_ready)
        before, zygote = workers.family(), front.ready()["zygote"]
        with front.client() as client:
            writer, reader = client.do_exchange(ECHO)
            writer.begin(SCHEMA)
            writer.write_batch(batch(1))
            assert reader.read_chunk().data == batch(1)
            workers.process.send_signal(signal.SIGUSR2)
            eventually(lambda: front.ready()["zygote"] != zygote)
            echo(client)
            writer.write_batch(batch(2))
            assert reader.read_chunk().data == batch(2)
            assert finish(writer, reader) == "OK"
        eventually(lambda: not any(map(lives, before)))
        # The successor ends with its front too.
        kill(front.process)
        front = Front(directory)
        eventually(front.is_ready)
        assert serves_again(front)
    finally:
        kill(front.process)
        workers.kill()


def test_nothing_of_the_workers_half_outlives_its_front_but_who_waits_for_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "leaving.py").write_text(LEAVING)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    front, workers = Front(directory), Workers(directory, "--functions=leaving")
    try:
        eventually(front.is_ready)
        client = front.client()
        # The daemon would end with its exchange too, so the exchange stays open until the front is lost.
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("daemon"))
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        # The function does not wait for its daemon.
        eventually((directory / "daemon").exists)
        daemon = psutil.Process(int((directory / "daemon").read_text()))
        family = workers.family()
        assert daemon in family
        assert named(family, "updraft-zygote")
        kill(front.process)
        eventually(lambda: not any(map(lives, [*family, daemon])))
        assert workers.process.poll() is None
        client.close()
    finally:
        kill(front.process)
        workers.kill()
