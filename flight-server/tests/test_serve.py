# SPDX-License-Identifier: Apache-2.0
"""`updraft-server serve` as users start it: every process is real."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

SCHEMA = pa.schema({"_0": pa.int64()})
ECHO = flight.FlightDescriptor.for_path("echo")
# Only a hang reaches it.
HANG_SECONDS = 60.0


class Server:
    """A running pool and what its ready file says."""

    def __init__(self, directory: Path, *options: str, **process: Any) -> None:
        self.ready_file = directory / "ready.json"
        self.process = subprocess.Popen([*self.command(*options), f"--ready-file={self.ready_file}"], **process)
        self.wait_for(self.ready_file.exists)

    @staticmethod
    def command(*options: str) -> list[str]:
        listen = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]
        return [sys.executable, "-c", "from updraft_server.cli import main; main()", "serve", *listen, *options]

    def ready(self) -> dict[str, Any]:
        return dict(json.loads(self.ready_file.read_text()))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        started = time.monotonic()
        while not condition():
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}"
            assert time.monotonic() - started < HANG_SECONDS
            time.sleep(0.01)

    def client(self) -> flight.FlightClient:
        return flight.connect(f"grpc://{self.ready()['listen']}")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(HANG_SECONDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"), "--workers=2")
    yield running
    assert running.stop() == 0


def batch(value: int, rows: int = 1000) -> pa.RecordBatch:
    return pa.record_batch({"_0": pa.array([value] * rows, pa.int64())})


def echo(client: flight.FlightClient, count: int = 3) -> None:
    batches = [batch(value) for value in range(count)]
    writer, reader = client.do_exchange(ECHO)
    writer.begin(SCHEMA)
    received: list[pa.RecordBatch] = []
    reading = threading.Thread(target=lambda: received.extend(chunk.data for chunk in reader))
    reading.start()
    for sent in batches:
        writer.write_batch(sent)
    writer.done_writing()
    reading.join()
    writer.close()
    assert received == batches


def serves_again(server: Server) -> bool:
    try:
        with server.client() as client:
            echo(client)
    except pa.ArrowException:
        return False
    return True


def test_a_killed_worker_fails_only_its_own_exchange_and_is_replaced(server: Server) -> None:
    with server.client() as client:
        open_exchanges = []
        for value in range(2):
            writer, reader = client.do_exchange(ECHO)
            writer.begin(SCHEMA)
            writer.write_batch(batch(value))
            reader.read_chunk()
            open_exchanges.append((writer, reader))
        before = server.ready()["workers"]
        os.kill(before[0], signal.SIGKILL)
        server.wait_for(lambda: len(set(server.ready()["workers"]) - set(before)) == 1)
        outcomes = [finish(writer, reader) for writer, reader in open_exchanges]
        assert sorted(outcomes) == ["OK", "killed"]
        echo(client)


def finish(writer: Any, reader: Any) -> str:
    try:
        writer.done_writing()
        while True:
            reader.read_chunk()
    except StopIteration:
        return "OK"
    except pa.ArrowException as failure:
        return "killed" if "SIGKILL" in str(failure) else str(failure)


def test_a_cancelled_exchange_frees_its_worker_at_once(server: Server) -> None:
    with server.client() as client:
        for _ in range(4):
            writer, reader = client.do_exchange(ECHO)
            writer.begin(SCHEMA)
            writer.write_batch(batch(1))
            reader.read_chunk()
            reader.cancel()
        echo(client)


@pytest.mark.parametrize("victim", ["front", "zygote"])
def test_a_killed_process_is_started_again_and_the_pool_serves_on(server: Server, victim: str) -> None:
    before = server.ready()
    os.kill(before[victim], signal.SIGKILL)
    server.wait_for(lambda: server.ready()[victim] != before[victim])
    server.wait_for(lambda: serves_again(server))
    assert server.ready()["listen"] == before["listen"]


def test_a_drain_that_times_out_tells_exchanges_that_another_pool_can_take_them(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1", "--drain-timeout-seconds=0.1")
    with server.client() as client:
        writer, reader = client.do_exchange(ECHO)
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        server.process.terminate()
        with pytest.raises(pa.ArrowException, match=r"UNAVAILABLE.*the pool is draining and ended the exchange"):
            reader.read_chunk()
        assert finish(writer, reader) != "OK"
    assert server.process.wait(HANG_SECONDS) == 0


def refused_exchange(client: flight.FlightClient) -> None:
    """An exchange that waits for the only worker until the drain refuses it, or is refused at once."""
    writer, reader = client.do_exchange(ECHO)
    writer.begin(SCHEMA)
    reader.read_chunk()


def test_sigterm_finishes_what_runs_and_ends_with_status_0(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1")
    with server.client() as client:
        writer, reader = client.do_exchange(ECHO)
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        server.process.terminate()
        with pytest.raises(flight.FlightUnavailableError, match="draining"):
            refused_exchange(client)
        writer.write_batch(batch(2))
        assert reader.read_chunk().data == batch(2)
        assert finish(writer, reader) == "OK"
    assert server.process.wait(HANG_SECONDS) == 0
