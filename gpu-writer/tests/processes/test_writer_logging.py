# SPDX-License-Identifier: Apache-2.0
"""Writer whose log is unread or cannot be written: it writes files as if it had no log."""

import fcntl
import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running_writer import BATCH, SCHEMA, WITHIN_SECONDS, RawExchange, command, read, wait_for
from writer_process import COMMAND

from updraft.client.writer import WriterClient
from updraft.service.log_output import MAX_LINE_BYTES
from updraft.v1.exchange_pb2 import Owner, TaskIdentity

PIPE_BYTES = 4096


class Served:
    """Running `updraft-writer serve`, and the contents of its ready file."""

    def __init__(self, directory: Path, log: Any) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self._ready_file = directory / "ready.json"
        listen = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]
        arguments = ["serve", *listen, f"--root={self.root}", f"--ready-file={self._ready_file}"]
        self.process = subprocess.Popen([*COMMAND, *arguments], stdout=log, stderr=log)
        wait_for(self._ready_file.exists, "the start")
        self.addresses = json.loads(self._ready_file.read_text())

    def write(self, name: str) -> None:
        client = WriterClient(self.addresses["listen"], timeout_seconds=WITHIN_SECONDS)
        with client, client.create(str(self.root / name), SCHEMA) as file:
            file.write(BATCH)
        assert read(self.root / name) == BATCH["n"].to_pylist()

    def refuse(self, path: str, **changes: Any) -> None:
        """Ask for a file that the writer may not write, which puts an error in its log."""
        with RawExchange(self.addresses["listen"], SCHEMA, command(path, **changes)) as exchange:
            exchange.last_reply()
            assert exchange.call.code() is grpc.StatusCode.PERMISSION_DENIED

    def dropped(self, reason: str) -> float:
        with urllib.request.urlopen(f"http://{self.addresses['metrics_listen']}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(rf'^updraft_writer_log_lines_dropped_total{{reason="{reason}"}} (\S+)$', text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    def is_healthy(self) -> bool:
        with grpc.insecure_channel(self.addresses["admin_listen"]) as channel:
            request = health_pb2.HealthCheckRequest()
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WITHIN_SECONDS)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@contextmanager
def served(directory: Path, log: Any) -> Iterator[Served]:
    writer = Served(directory, log)
    try:
        yield writer
        writer.process.terminate()
        assert writer.process.wait(WITHIN_SECONDS) == 0
    finally:
        writer.process.kill()
        writer.process.wait()


def test_a_writer_whose_log_nobody_reads_writes_on_and_ends_in_order(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with served(tmp_path, writing) as writer:
        # More than the pipe and the buffer hold.
        for _ in range(600):
            writer.refuse("/elsewhere/" + "x" * 1900)
        for number in range(10):
            writer.write(f"{number}.parquet")
        assert writer.is_healthy()
        assert writer.dropped("unread") > 0
    os.close(reading)
    os.close(writing)


def test_a_writer_whose_log_cannot_be_written_writes_and_counts(tmp_path: Path) -> None:
    # Every write to this device fails as on a full disk.
    with Path("/dev/full").open("wb") as full, served(tmp_path, full) as writer:
        for number in range(10):
            writer.write(f"{number}.parquet")
        writer.refuse("/elsewhere")
        wait_for(lambda: writer.dropped("failed") > 10, "counting")
        assert writer.is_healthy()


@pytest.mark.parametrize("what", ["path", "application_id", "query_id"])
def test_nothing_that_a_client_sends_makes_a_line_long(tmp_path: Path, what: str) -> None:
    long = "x" * (1 << 20)
    log = tmp_path / "log"
    with log.open("wb") as file, served(tmp_path, file) as writer:
        path = "/" + long if what == "path" else "/elsewhere"
        task = TaskIdentity(owner=Owner(application_id="application"))
        if what == "application_id":
            task.owner.application_id = long
        if what == "query_id":
            task.query_id = long
        writer.refuse(path, task=task)
        wait_for(lambda: b"exchange ended" in log.read_bytes(), "the end of the exchange")
    lines = log.read_bytes().splitlines()
    assert max(map(len, lines)) < MAX_LINE_BYTES
    (end,) = [line for line in map(json.loads, lines) if line["event"] == "exchange ended"]
    logged = end[what.removesuffix("_id")]
    assert logged.endswith("xxx...")
    assert len(logged) == (2048 if what == "path" else 200)


def test_why_a_writer_does_not_start_is_said_on_a_terminal() -> None:
    controlling, terminal = os.openpty()
    addresses = ["--listen=192.0.2.1:1", "--insecure-no-token", "--admin-listen=", "--metrics-listen="]
    ended = subprocess.run([*COMMAND, "serve", *addresses], stdout=terminal, stderr=terminal, timeout=60)
    os.close(terminal)
    said = os.read(controlling, 100_000)
    os.close(controlling)
    assert ended.returncode == 2
    assert b"cannot start: cannot listen on 192.0.2.1:1" in said
