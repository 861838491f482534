# SPDX-License-Identifier: Apache-2.0
"""Processes of `updraft-server serve`, and exchanges with its function `echo`."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from updraft.v1.control_pb2 import PoolStatus

SCHEMA = pa.schema({"_0": pa.int64()})
ECHO = flight.FlightDescriptor.for_path("echo")
# Reached only if something hangs.
HANG_SECONDS = 60.0


FREE_PORTS = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]


def server_command(name: str, *options: str) -> list[str]:
    return [sys.executable, "-c", "from updraft_server.cli import main; main()", name, *options]


def front_command(directory: Path, *options: str) -> list[str]:
    """Return the command of a front that keeps its files in this directory."""
    return server_command("front", *FREE_PORTS, f"--runtime-directory={directory}/front", *options)


def workers_command(directory: Path, *options: str) -> list[str]:
    """Return the command of that front's workers."""
    return server_command(
        "workers", f"--front-directory={directory}/front", f"--runtime-directory={directory}/workers", *options
    )


class Server:
    """Running pool, and the contents of its ready file."""

    def __init__(self, directory: Path, *options: str, **process: Any) -> None:
        self.ready_file = directory / "ready.json"
        self.process = subprocess.Popen([*self.command(*options), f"--ready-file={self.ready_file}"], **process)
        self.wait_for(self.ready_file.exists)

    @staticmethod
    def command(*options: str) -> list[str]:
        return server_command("serve", *FREE_PORTS, *options)

    def ready(self) -> dict[str, Any]:
        return dict(json.loads(self.ready_file.read_text()))

    def status(self) -> PoolStatus:
        with self.client() as client:
            (result,) = client.do_action(flight.Action("updraft.pool_status", b""))
            return PoolStatus.FromString(result.body.to_pybytes())

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.ready()['metrics_listen']}{path}") as answer:
            return str(answer.read().decode())

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


def batch(value: int, rows: int = 1000) -> pa.RecordBatch:
    return pa.record_batch({"_0": pa.array([value] * rows, pa.int64())})


def echo(client: flight.FlightClient, count: int = 3) -> None:
    batches = [batch(value) for value in range(count)]
    writer, reader = client.do_exchange(ECHO)
    writer.begin(SCHEMA)
    with ThreadPoolExecutor(1) as reading:
        received = reading.submit(lambda: [chunk.data for chunk in reader])
        for sent in batches:
            writer.write_batch(sent)
        writer.done_writing()
    writer.close()
    assert received.result() == batches


def serves_again(server: Server) -> bool:
    try:
        with server.client() as client:
            echo(client)
    except pa.ArrowException:
        return False
    return True


def finish(writer: Any, reader: Any) -> str:
    try:
        writer.done_writing()
        while True:
            reader.read_chunk()
    except StopIteration:
        return "OK"
    except pa.ArrowException as failure:
        return "killed" if "SIGKILL" in str(failure) else str(failure)
