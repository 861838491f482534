# SPDX-License-Identifier: Apache-2.0
"""Pool whose log is unread, cannot be written, or is flooded by a function: it serves as if it had no log."""

import fcntl
import json
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from flight_messages import path_request
from front_harness import DO_EXCHANGE
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight
from served_pool import SCHEMA, Server, batch, echo, finish

from updraft.protocol import PROTOCOL_VERSION
from updraft.service.log_output import MAX_LINE_BYTES
from updraft.v1.exchange_pb2 import ExchangeCommand, Finish, Owner, RegisteredFunction, RequestMetadata, TaskIdentity

PIPE_BYTES = 4096
FLOOD_LINES = 90 * 1024
FLOOD_LINE_BYTES = 1024

FUNCTIONS = f"""
import sys, time
from pathlib import Path

import pyarrow as pa

from updraft import function


@function(result=lambda schema: schema)
def floods(batch: pa.RecordBatch) -> pa.RecordBatch:
    for _ in range({FLOOD_LINES // 1024}):
        sys.stdout.write(("x" * {FLOOD_LINE_BYTES - 1} + "\\n") * 1024)
    while not Path(__file__).with_name("enough").exists():
        sys.stdout.write("still here\\n" * 1000)
        time.sleep(0.001)
    return batch


@function(result=lambda schema: schema)
def prints(batch: pa.RecordBatch) -> pa.RecordBatch:
    print("y" * 100_000)
    return batch
"""


@contextmanager
def served(directory: Path, log: Any, *options: str, **environment: str) -> Iterator[Server]:
    server = Server(directory, *options, stdout=log, stderr=log, env={**os.environ, **environment})
    try:
        yield server
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    """Return a directory with the module `noisy`, for PYTHONPATH."""
    directory = tmp_path / "functions"
    directory.mkdir()
    (directory / "noisy.py").write_text(FUNCTIONS)
    return directory


def metric(server: Server, name: str, **labels: str) -> float:
    """Return the value of a series, or 0 if it does not exist."""
    with urllib.request.urlopen(f"http://{server.ready()['metrics_listen']}/metrics") as answer:
        text = answer.read().decode()
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    found = re.search(rf"^{name}{{{written}}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def dropped(server: Server, reason: str) -> float:
    return metric(server, "updraft_log_lines_dropped_total", reason=reason)


def is_healthy(server: Server) -> bool:
    with grpc.insecure_channel(server.ready()["admin_listen"]) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def refused(server: Server, times: int = 1) -> None:
    """Make exchanges that end with an error, and so with a long line in the log."""
    message = path_request("x" * 1000)
    with grpc.insecure_channel(server.ready()["listen"]) as channel:
        for _ in range(times):
            with pytest.raises(grpc.RpcError) as refusal:
                list(channel.stream_stream(DO_EXCHANGE)(iter([message])))
            assert refusal.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_pool_whose_log_nobody_reads_serves_on_and_ends_in_order(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with served(tmp_path, writing, "--workers=1") as server, server.client() as client:
        front = server.ready()["front"]
        # More than the pipe and the buffer hold.
        refused(server, 2000)
        for _ in range(200):
            echo(client)
        assert is_healthy(server)
        assert server.ready()["front"] == front
        assert dropped(server, "unread") > 0
        os.kill(front, 9)
        server.wait_for(lambda: server.ready()["front"] != front)
        with server.client() as again:
            echo(again)
    os.close(reading)
    os.close(writing)


def test_a_pool_whose_log_cannot_be_written_serves_and_counts(tmp_path: Path) -> None:
    # Every write to this device fails as on a full disk.
    with Path("/dev/full").open("wb") as full, served(tmp_path, full, "--workers=2") as server:
        with server.client() as client:
            for _ in range(50):
                echo(client)
        refused(server)
        before = server.ready()["workers"].keys()
        os.kill(server.ready()["workers"][min(before)], 9)
        # Until the front hears of the death, it may send that worker an exchange, which fails.
        server.wait_for(lambda: len(server.ready()["workers"].keys() - before) == 1)
        with server.client() as client:
            echo(client)
        server.wait_for(lambda: dropped(server, "failed") >= 50)
        assert is_healthy(server)


def test_modules_that_print_while_nobody_reads_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text(
        'import sys\nfor stream in (sys.stdout, sys.stderr): print("x" * 200_000, file=stream)\n'
    )
    reading, writing = os.pipe()
    options = ("--workers=1", "--functions=talks")
    with served(tmp_path, writing, *options, PYTHONPATH=str(tmp_path)) as server, server.client() as client:
        echo(client)
    os.close(reading)
    os.close(writing)


def test_a_function_that_floods_its_log_delays_nobody_and_its_flood_is_counted(tmp_path: Path, functions: Path) -> None:
    options = ("--workers=2", "--functions=noisy", "--output-lines-per-second=1")
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        served(tmp_path, file, *options, PYTHONPATH=str(functions)) as server,
        server.client() as client,
    ):
        flooding, flooded = client.do_exchange(flight.FlightDescriptor.for_path("floods"))
        flooding.begin(SCHEMA)
        flooding.write_batch(batch(1))
        answered = threading.Thread(target=flooded.read_chunk)
        answered.start()
        for _ in range(50):
            echo(client)
        assert answered.is_alive()
        (functions / "enough").touch()
        # The worker can end only because the front has read everything.
        answered.join(60)
        assert finish(flooding, flooded) == "OK"
        logged = sum(line.get("event") == "worker output" for line in lines_of(log))
        assert 0 < logged < 100
        server.wait_for(lambda: dropped(server, "flood") >= FLOOD_LINES - logged)
        server.wait_for(lambda: bool(drops(log)))
        said = drops(log)[0]
    assert said["bytes"] > said["lines"] > 0
    assert said["function"] == "floods"


def test_nothing_that_a_client_sends_makes_a_line_long(tmp_path: Path, functions: Path) -> None:
    task = TaskIdentity(owner=Owner(application_id="a" * (1 << 20)), query_id="q" * (1 << 20))
    command = ExchangeCommand(
        protocol_version=PROTOCOL_VERSION, registered=RegisteredFunction(name="prints"), task=task
    )
    options = ("--workers=1", "--functions=noisy")
    with (tmp_path / "log").open("wb") as log, served(tmp_path, log, *options, PYTHONPATH=str(functions)) as server:
        with server.client() as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command.SerializeToString()))
            writer.begin(SCHEMA)
            writer.write_with_metadata(batch(1, 10), RequestMetadata(sequence=1).SerializeToString())
            writer.write_metadata(RequestMetadata(finish=Finish(batches=1, rows=10)).SerializeToString())
            assert finish(writer, reader) == "OK"
        server.wait_for(lambda: bool(ended(tmp_path / "log")))
        (end,) = ended(tmp_path / "log")
    assert end["application"] == "a" * 197 + "..."
    assert end["query"] == "q" * 197 + "..."
    assert max(map(len, (tmp_path / "log").read_bytes().splitlines())) < MAX_LINE_BYTES


def ended(log: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(log) if line["event"] == "exchange ended"]


def drops(log: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(log) if "was dropped" in line["event"]]


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Return the front's complete log lines; lines of other processes are not JSON."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")]


def test_why_a_pool_does_not_start_is_said_on_a_terminal(tmp_path: Path) -> None:
    controlling, terminal = os.openpty()
    command = [*Server.command("--listen=192.0.2.1:1", "--insecure-no-token")]
    ended = subprocess.run(command, stderr=terminal, stdout=terminal, timeout=60)
    os.close(terminal)
    assert ended.returncode != 0
    said = os.read(controlling, 100_000)
    os.close(controlling)
    assert b"cannot listen on 192.0.2.1:1" in said
